import java.util.Objects;

/** Runs named checks and prints a line for each: its name, a tab, and "ok" or what went wrong. */
final class Checks {
    interface Check {
        void run() throws Exception;
    }

    static void check(String name, Check check) {
        String result = "ok";
        try {
            check.run();
        } catch (Throwable error) {
            result = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
            if (error instanceof RuntimeException) {
                result = error.getClass().getSimpleName() + " " + result;
            }
        }
        System.out.println(name + "\t" + result);
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("it does not hold that " + what);
        }
    }

    private Checks() {}
}
