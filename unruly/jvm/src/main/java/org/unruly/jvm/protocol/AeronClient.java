package org.unruly.jvm.protocol;

import io.aeron.Aeron;
import java.util.function.BooleanSupplier;
import org.unruly.jvm.stream.Terms;

/** A client of Aeron with the driver it needs, as both ends have it. */
final class AeronClient implements AutoCloseable {
  /** One stream for each channel: the run's cookie tells runs apart. */
  static final int STREAM = 1;

  /** Connections take up to some hundred milliseconds, on a busy host seconds. */
  static final long CONNECT_NS = 10_000_000_000L;

  private final AeronDriver driver;
  private final Aeron aeron;

  AeronClient(Terms terms) {
    driver = terms.driver() == null ? AeronDriver.launch() : null;
    aeron = AeronDriver.connect(driver == null ? terms.driver() : driver.directory());
  }

  Aeron aeron() {
    return aeron;
  }

  /** Waits by yielding, as Aeron's own loops do. */
  static boolean await(BooleanSupplier come, long untilNs) {
    while (!come.getAsBoolean()) {
      if (System.nanoTime() >= untilNs) {
        return false;
      }
      Thread.yield();
    }
    return true;
  }

  @Override
  public void close() {
    aeron.close();
    if (driver != null) {
      driver.close();
    }
  }
}
