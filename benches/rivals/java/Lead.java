import java.util.function.BooleanSupplier;

/** What the rivals in Java share: the lines that the harness reads (go/lead/lead.go). System.nanoTime() is CLOCK_MONOTONIC on Linux. */
final class Lead {
    private static volatile boolean stop;

    /** STORE NODE ROLE TTL_SECONDS (0: the library's default) ROLES, and what else a rival takes. */
    record Options(String store, String node, String role, int ttl, int roles, boolean more) {
        Options(String[] a) {
            this(a[0], a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]), a.length > 5);
        }
    }

    static synchronized void say(String word) {
        System.out.print(word + " " + System.nanoTime() + "\n");
        System.out.flush();
    }

    /** The work of a leader. */
    static void work(BooleanSupplier leads) {
        try {
            while (leads.getAsBoolean() && !stop) {
                say("W");
                Thread.sleep(5);
            }
        } catch (Exception e) {
            System.err.println(e);
        }
        say(stop ? "RESIGNED" : "LOST");
    }

    /** At SIGTERM: ends the work, and gives the role back. */
    static void atTerm(Runnable resign) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop = true;
            try {
                resign.run();
            } catch (Throwable e) {
                System.err.println(e);
            }
            Runtime.getRuntime().halt(0);
        }));
    }

    static void await(Thread thread) {
        try {
            if (thread != null) thread.join(2000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
