package org.unruly.jvm;

import java.util.Set;
import org.unruly.jvm.collector.Load;
import org.unruly.jvm.collector.Workload;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.watch.Watch;

/** A collector's workload alone in its process. */
final class CollectorRun {
  static final Set<String> KEYS = Set.of("socket", "live", "occupancy", "cores");

  private CollectorRun() {}

  /** Runs until it is stopped. */
  static void run(Options options, Parent parent) throws InterruptedException {
    try (Load load = Load.build(Workload.of(options), true, parent)) {
      Telling.hello(parent, -1);
      Watch watch = new Watch(parent, null, 0, load);
      try {
        Waiting.untilStopped(parent);
      } finally {
        watch.close();
      }
    }
  }
}
