package org.unruly.jvm.protocol;

import io.aeron.Aeron;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.File;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.agrona.IoUtil;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.unruly.jvm.Problem;
import org.unruly.jvm.Shutdown;
import org.unruly.jvm.stream.StreamConfig;

/** Aeron's media driver: one of our own, in this process, or a stand-alone one that others share. */
public final class AeronDriver implements AutoCloseable {
  /** Three of them make a log; a message is at most an eighth of one. In memory, so that they are not the defaults of 64 MiB. */
  private static final int TERM_BYTES = 4 << 20;

  private static final AtomicInteger DRIVERS = new AtomicInteger();

  private final MediaDriver driver;
  private final String directory;

  private AeronDriver(String directory) {
    this.directory = directory;
    Shutdown.atEnd(() -> IoUtil.delete(new File(directory), true));
    try {
      driver =
          MediaDriver.launch(
              new MediaDriver.Context()
                  .aeronDirectoryName(directory)
                  .dirDeleteOnStart(true)
                  .dirDeleteOnShutdown(true)
                  .termBufferSparseFile(true)
                  .publicationTermBufferLength(TERM_BYTES)
                  .ipcTermBufferLength(TERM_BYTES)
                  // one thread: these hosts have two cores
                  .threadingMode(ThreadingMode.SHARED)
                  .sharedIdleStrategy(new BackoffIdleStrategy(1, 1, 1_000, 100_000))
                  .errorHandler(thrown -> System.err.println("aeron: " + thrown)));
    } catch (RuntimeException thrown) {
      String wrong = "no media driver at " + directory + ": " + thrown.getMessage();
      throw new Problem("aeron", wrong, "a folder of memory that we may write", "is /dev/shm full?", thrown);
    }
  }

  /** Starts a driver with a folder of that name, which is deleted at the end. */
  public static AeronDriver launch(String directory) {
    return new AeronDriver(directory);
  }

  /** Starts a driver with a folder named by this process. */
  static AeronDriver launch() {
    return launch("/dev/shm/unruly-aeron-" + ProcessHandle.current().pid() + "-" + DRIVERS.getAndIncrement());
  }

  /** A client of a driver. */
  static Aeron connect(String directory) {
    try {
      return Aeron.connect(
          new Aeron.Context()
              .aeronDirectoryName(directory)
              .errorHandler(thrown -> System.err.println("aeron: " + thrown)));
    } catch (RuntimeException thrown) {
      String wrong = "no answer from the media driver at " + directory + ": " + thrown.getMessage();
      throw new Problem("aeron", wrong, "a driver that runs", "start aeron-driver first", thrown);
    }
  }

  String directory() {
    return directory;
  }

  @Override
  public void close() {
    driver.close();
  }

  /** A client of Aeron with the driver that it needs; both ends have one. */
  static final class AeronClient implements AutoCloseable {
    /** One stream for each channel; the run's cookie separates runs. */
    static final int STREAM = 1;

    /** Connections take up to some hundred milliseconds, on a busy host seconds. */
    static final long CONNECT_NS = 10_000_000_000L;

    private final AeronDriver driver;
    private final Aeron aeron;

    AeronClient(StreamConfig config) {
      driver = config.driver() == null ? AeronDriver.launch() : null;
      aeron = AeronDriver.connect(driver == null ? config.driver() : driver.directory());
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
}
