package org.unruly.jvm.watch;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;

class TaskTimesTest {
  private static final long BURNT_NS = 100_000_000;

  /** CPU time, not time: a busy host changes nothing. */
  @Test
  void theTimeOfAThreadCountsWhileItRunsAndAfterItHasEnded() throws InterruptedException {
    TaskTimes times = new TaskTimes();
    long beforeNs = times.read().processNs();
    long[] seenNs = new long[1];
    Thread burning = new Thread(() -> {
      var beans = ManagementFactory.getThreadMXBean();
      while (beans.getCurrentThreadCpuTime() < BURNT_NS) {
        Thread.onSpinWait();
      }
      seenNs[0] = times.read().processNs();
    });
    burning.start();
    burning.join();
    // what the scheduler has counted is as old as its last tick
    assertTrue(seenNs[0] - beforeNs >= BURNT_NS / 2, seenNs[0] - beforeNs + " ns");
    assertTrue(times.read().processNs() >= seenNs[0]);
  }

  @Test
  void collectionsAreCountedApart() {
    TaskTimes times = new TaskTimes();
    long beforeNs = times.read().collectorNs();
    long processNs = times.processNs();
    for (int collection = 0; collection < 10; collection++) {
      System.gc();
    }
    assertTrue(times.read().collectorNs() > beforeNs);
    assertTrue(times.collectorNs() - beforeNs <= times.processNs() - processNs);
  }

  @Test
  void theThreadsOfEveryCollectorAreKnownByName() {
    for (String name : "GC Thread#0,G1 Main Marker,G1 Conc#0,G1 Refine#0,G1 Service,VM Thread,ZWorker#1,ZDriver,Shenandoah GC T".split(",")) {
      assertTrue(TaskTimes.collects(name), name);
    }
    for (String name : "java,main,C2 CompilerThre,VM Periodic Tas,Common-Cleaner,stream,load".split(",")) {
      assertFalse(TaskTimes.collects(name), name);
    }
  }
}
