package org.unruly.jvm.watch;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * CPU time of this process by thread, from {@code /proc/self/task}.
 *
 * <p>The MXBean of the operating system counts in ticks of 10 ms, a tenth of an interval, and cannot separate the
 * collector's threads, which are not Java's, from the rest. The kernel's scheduler counts in ns, though the value of a
 * running thread is as old as its last tick. A thread that has ended keeps its last value.
 */
public final class TaskTimes {
  /** Threads that collect garbage, in all collectors of JDK 17; Serial collects in the VM's own thread. */
  private static final Pattern COLLECTOR =
      Pattern.compile("(GC Thread|G1 |ParGC|ZDirector|ZDriver|ZStat|ZUncommitter|ZUnmapper|ZWorker|XWorker|RuntimeWorker|Shenandoah|VM Thread).*");

  private static final File TASKS = new File("/proc/self/task");

  private final Map<String, Task> tasks = new HashMap<>();

  /** CPU time of all threads since this process began, ns. */
  public long processNs() {
    return sum(false);
  }

  /** CPU time of the threads that collect garbage, ns. */
  public long collectorNs() {
    return sum(true);
  }

  /** Whether a thread of that name collects garbage. */
  static boolean collects(String name) {
    return COLLECTOR.matcher(name).matches();
  }

  /** Reads the times anew. */
  public TaskTimes read() {
    String[] names = TASKS.list();
    for (String name : names == null ? new String[0] : names) {
      try {
        Path folder = TASKS.toPath().resolve(name);
        Task task = tasks.get(name);
        long ranNs = ranNs(Files.readString(folder.resolve("schedstat"), StandardCharsets.US_ASCII));
        if (task == null || ranNs < task.ranNs) {
          task = new Task(collects(Files.readString(folder.resolve("comm"), StandardCharsets.US_ASCII).strip()), endedNs(task));
          tasks.put(name, task);
        }
        task.ranNs = ranNs;
      } catch (IOException thrown) {
        // it has ended meanwhile
      }
    }
    return this;
  }

  private static long ranNs(String schedstat) {
    return Long.parseLong(schedstat, 0, schedstat.indexOf(' '), 10);
  }

  private static long endedNs(Task before) {
    // a number of a thread that was given again
    return before == null ? 0 : before.endedNs + before.ranNs;
  }

  private long sum(boolean collectorOnly) {
    long sumNs = 0;
    for (Task task : tasks.values()) {
      if (task.collects || !collectorOnly) {
        sumNs += task.ranNs + task.endedNs;
      }
    }
    return sumNs;
  }

  private static final class Task {
    private final boolean collects;
    private final long endedNs;
    private long ranNs;

    private Task(boolean collects, long endedNs) {
      this.collects = collects;
      this.endedNs = endedNs;
    }
  }
}
