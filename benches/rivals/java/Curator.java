import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** One client, and a LeaderLatch for each role. */
public final class Curator {
    private static volatile Thread worker;

    public static void main(String[] arguments) throws Exception {
        var options = new Lead.Options(arguments);
        var builder = CuratorFrameworkFactory.builder().connectString(options.store()).retryPolicy(new ExponentialBackoffRetry(100, 10));
        if (options.ttl() > 0) builder.sessionTimeoutMs(options.ttl() * 1000).connectionTimeoutMs(options.ttl() * 1000);
        var client = builder.build();
        client.start();
        LeaderLatch[] latches = new LeaderLatch[options.roles()];
        for (int i = 0; i < latches.length; i++) latches[i] = start(new LeaderLatch(client, "/" + options.role() + "/" + i, options.node()), options);
        Lead.atTerm(() -> {
            Lead.await(worker);
            try {
                for (LeaderLatch latch : latches) latch.close();
            } catch (Exception e) {
                System.err.println(e);
            }
            client.close();
        });
        Thread.sleep(Long.MAX_VALUE);
    }

    private static LeaderLatch start(LeaderLatch latch, Lead.Options options) throws Exception {
        latch.addListener(new LeaderLatchListener() {
            public void isLeader() {
                Lead.say("ELECTED");
                if (options.roles() > 1) return;
                worker = new Thread(() -> Lead.work(latch::hasLeadership));
                worker.start();
            }

            public void notLeader() {}
        });
        latch.start();
        return latch;
    }
}
