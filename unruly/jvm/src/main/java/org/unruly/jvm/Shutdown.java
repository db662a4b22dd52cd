package org.unruly.jvm;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/**
 * How this process ends: what it leaves lying about is taken away, then it halts.
 *
 * <p>Not {@link System#exit}: libraries have threads and hooks of their own that may hold a process for seconds, and an
 * agent that ended must never leave a JVM behind.
 */
public final class Shutdown {
  /** Time for a stopped run to deliver its messages under way, ns. */
  public static final long STOP_NS = 500_000_000;

  private static final long TIMEOUT_NS = 1_000_000_000L;
  private static final List<Runnable> LAST = new CopyOnWriteArrayList<>();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(Shutdown::tidy, "last"));
  }

  private Shutdown() {}

  /** Has something done before the process ends, however it ends, short of being killed. */
  public static void atEnd(Runnable last) {
    LAST.add(last);
  }

  /** Ends the process with a status; when halting takes more than a second, by a signal. */
  public static void now(int status) {
    tidyInTime();
    long pid = ProcessHandle.current().pid();
    // while it halts no thread of ours runs. The shell's parent is no longer we once we have ended: then it kills no one
    run("sleep 1; [ \"$(cut -d' ' -f4 /proc/$$/stat)\" = " + pid + " ] && kill -KILL " + pid);
    Runtime.getRuntime().halt(status);
  }

  /**
   * Ends the process at once, when no agent is left to receive a status. Halting the JVM waits for collections and for
   * the compiler, for seconds if need be; the kernel's own signal does not.
   */
  public static void atOnce() {
    tidyInTime();
    // Java can kill any process but its own
    Process killing = run("kill -KILL " + ProcessHandle.current().pid());
    try {
      if (killing != null) {
        killing.waitFor();
      }
    } catch (InterruptedException thrown) {
      // then it halts
    }
    Runtime.getRuntime().halt(0);
  }

  /** Null without a shell. */
  private static Process run(String command) {
    try {
      return new ProcessBuilder("sh", "-c", command).start();
    } catch (IOException thrown) {
      return null;
    }
  }

  private static void tidyInTime() {
    Thread tidying = new Thread(Shutdown::tidy, "last");
    tidying.setDaemon(true);
    tidying.start();
    try {
      TimeUnit.NANOSECONDS.timedJoin(tidying, TIMEOUT_NS);
    } catch (InterruptedException thrown) {
      // then without
    }
  }

  private static void tidy() {
    for (Runnable last : LAST) {
      last.run();
    }
  }
}
