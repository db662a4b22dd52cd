package org.unruly.jvm;

import java.util.Set;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.protocol.AeronDriver;
import org.unruly.jvm.watch.Watch;

/** Aeron's media driver in a process of its own, which streams of this host share. */
final class AeronDriverRun {
  static final Set<String> KEYS = Set.of("socket", "directory");

  private AeronDriverRun() {}

  /** Runs until it is stopped. */
  static void run(Options options, Parent parent) throws InterruptedException {
    AeronDriver driver = AeronDriver.launch(options.text("directory"));
    Telling.hello(parent, -1);
    Watch watch = new Watch(parent, null, 0, null);
    try {
      Waiting.untilStopped(parent);
    } finally {
      watch.close();
      driver.close();
    }
  }
}
