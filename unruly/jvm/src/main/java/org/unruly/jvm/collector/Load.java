package org.unruly.jvm.collector;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.Parent.Command;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.stream.StreamCounts.Counter;
import org.unruly.jvm.watch.ProcessMonitor.CompetingLoad;
import org.unruly.jvm.watch.TaskTimes;

/**
 * A running collector's workload: as many workers as cores, steered each 100 ms.
 *
 * <p>Its CPU time is that of its workers and of all threads of the collector: garbage of the stream in the same process
 * is collected by the same threads and cannot be separated. Alone in its process, it is the whole process's.
 */
public final class Load implements CompetingLoad, AutoCloseable {
  private static final long STEP_NS = 100_000_000;

  private final boolean alone;
  private final Controller controller;
  private final List<Worker> workers = new ArrayList<>();
  private final List<Thread> threads = new ArrayList<>();
  private final TaskTimes times = new TaskTimes();
  private final ThreadMXBean beans = ManagementFactory.getThreadMXBean();
  private long beganNs;
  private volatile boolean closing;

  private Load(Workload workload, boolean alone) {
    this.alone = alone;
    controller = new Controller(workload.targetNs());
    for (int worker = 0; worker < workload.workers(); worker++) {
      workers.add(new Worker(new Structure(workload.liveBytes() / workload.workers(), worker)));
    }
  }

  /**
   * Builds the structure and begins.
   *
   * @param alone true if nothing else runs in this process
   * @param parent is notified when the load breaks
   */
  public static Load build(Workload workload, boolean alone, Parent parent) {
    Load load;
    try {
      load = new Load(workload, alone);
    } catch (OutOfMemoryError thrown) {
      throw outOfMemory(workload, thrown);
    }
    for (Worker worker : load.workers) {
      worker.setRate(load.controller.firstRateHz() / load.workers.size());
      load.start(worker, "load", workload, parent);
    }
    load.beganNs = load.usedNs();
    load.start(load::steer, "steering", workload, parent);
    return load;
  }

  @Override
  public long cpuNs() {
    return usedNs() - beganNs;
  }

  @Override
  public long replaced() {
    return workers.stream().mapToLong(Worker::replaced).sum();
  }

  @Override
  public void close() {
    closing = true;
    workers.forEach(Worker::close);
  }

  private void start(Runnable task, String name, Workload workload, Parent parent) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.setUncaughtExceptionHandler(
        (broken, thrown) ->
            parent.add(Command.finished(thrown instanceof OutOfMemoryError error ? outOfMemory(workload, error) : thrown)));
    if (task instanceof Worker) {
      threads.add(thread);
    }
    thread.start();
  }

  private void steer() {
    long beforeNs = System.nanoTime();
    long usedNs = usedNs();
    long replaced = replaced();
    while (!closing) {
      LockSupport.parkNanos(beforeNs + STEP_NS - System.nanoTime());
      long nowNs = System.nanoTime();
      long nowUsedNs = usedNs();
      long nowReplaced = replaced();
      double rateHz = controller.rateHz(nowNs - beforeNs, nowUsedNs - usedNs, nowReplaced - replaced);
      workers.forEach(worker -> worker.setRate(rateHz / workers.size()));
      beforeNs = nowNs;
      usedNs = nowUsedNs;
      replaced = nowReplaced;
    }
  }

  /** Returns the CPU time used, for the controller and for the records, ns. */
  private synchronized long usedNs() {
    times.read();
    if (alone) {
      return times.processNs();
    }
    long sumNs = times.collectorNs();
    for (Thread thread : threads) {
      sumNs += Math.max(0, beans.getThreadCpuTime(thread.getId()));
    }
    return sumNs;
  }

  private static Problem outOfMemory(Workload workload, OutOfMemoryError thrown) {
    String wrong = thrown.getMessage() + ", with " + workload.liveBytes() + " bytes live in a heap of " + Runtime.getRuntime().maxMemory();
    return new Problem("collector", wrong, "room for the collector to work in", "a larger -Xmx, or a smaller live", thrown);
  }

  /** Drops and adds elements of a structure of its own, evenly, at a rate that may change. */
  static final class Worker implements Runnable {
    private static final long TICK_NS = 1_000_000;

    /**
     * The longest stop that is made up for, ns. Work missed in a pause is done after it; otherwise a collector that
     * pauses half of the time would halve the rate. A longer stop is not one of a collector.
     */
    private static final long TICK_NS_MAX = 1000 * TICK_NS;

    /** Elements after which a worker reads the clock and checks whether to end. */
    private static final long BATCH = 10_000;

    private final Structure structure;
    private final Counter replaced = new Counter();
    private volatile double rateHz;
    private volatile boolean closing;

    Worker(Structure structure) {
      this.structure = structure;
    }

    void setRate(double elementsHz) {
      rateHz = elementsHz;
    }

    long replaced() {
      return replaced.get();
    }

    void close() {
      closing = true;
    }

    @Override
    public void run() {
      double owed = 0;
      long beforeNs = System.nanoTime();
      while (!closing) {
        long nowNs = System.nanoTime();
        owed += Math.min(nowNs - beforeNs, TICK_NS_MAX) * rateHz / 1e9;
        beforeNs = nowNs;
        long now = Math.min((long) owed, BATCH);
        for (long one = 0; one < now; one++) {
          structure.replaceOne();
        }
        owed -= now;
        replaced.add(now);
        long leftNs = nowNs + TICK_NS - System.nanoTime();
        if (leftNs > 0) {
          LockSupport.parkNanos(leftNs);
        }
      }
    }
  }
}
