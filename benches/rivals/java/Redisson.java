import java.util.concurrent.Semaphore;
import org.redisson.api.RFencedLock;
import org.redisson.config.Config;

/** A fenced lock for each role, kept by Redisson's watchdog. With one more argument it asks the server before each line of work. */
public final class Redisson {
    public static void main(String[] arguments) throws Exception {
        var options = new Lead.Options(arguments);
        Config config = new Config();
        if (options.ttl() > 0) config.setLockWatchdogTimeout(options.ttl() * 1000L);
        config.useSingleServer().setAddress(options.store());
        var client = org.redisson.Redisson.create(config);
        Thread[] threads = new Thread[options.roles()];
        for (int i = 0; i < threads.length; i++) {
            RFencedLock lock = client.getFencedLock(options.role() + "-" + i);
            threads[i] = new Thread(() -> lead(lock, options));
            threads[i].setDaemon(true);
            threads[i].start();
        }
        Lead.atTerm(() -> Lead.await(threads[0]));
        Thread.sleep(Long.MAX_VALUE);
    }

    /** Nothing tells the holder that its lock has gone: it can only ask. */
    private static void lead(RFencedLock lock, Lead.Options options) {
        lock.lockAndGetToken();
        Lead.say("ELECTED");
        if (options.roles() > 1) {
            new Semaphore(0).acquireUninterruptibly();
        }
        Lead.work(() -> !options.more() || lock.isHeldByCurrentThread());
        if (lock.isHeldByCurrentThread()) lock.unlock();
    }
}
