package org.unruly.jvm.watch;

import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.stream.StreamCounts;

/**
 * Tells each 100 ms what this process did, and each second what its collector did, or the latter alone.
 *
 * <p>Intervals end at whole multiples of 100 ms of CLOCK_MONOTONIC, so that those of several processes of a host meet.
 */
public final class ProcessMonitor implements AutoCloseable {
  /** Length of an interval, ns. */
  public static final long INTERVAL_NS = 100_000_000;

  private static final long SECOND_NS = 1_000_000_000;

  /** The last row is waited for through pauses of the world, or the sums of rows would lack it. */
  private static final long TIMEOUT_S = 10;

  private final Parent parent;
  private final long periodNs;
  private final StreamCounts counts;
  private final long messageBytes;
  private final CompetingLoad load;
  private final TaskTimes times = new TaskTimes();
  private final Thread thread = new Thread(this::run, "watch");
  private final long[] row = new long[ForeignRecord.FIELDS];
  private final long[] before = new long[4];
  private volatile boolean closing;
  private long startedNs;
  private long cpuNs;

  /**
   * Watches from now on, and sends its rows after {@link #start}.
   *
   * <p>Make it before the hello: a process that may use little of a core loads these classes for seconds, and until then
   * nobody would know what it used.
   *
   * @param counts of the stream, or null without one
   * @param messageBytes of each of its messages
   * @param load the collector's workload, or null without one
   */
  public ProcessMonitor(Parent parent, StreamCounts counts, long messageBytes, CompetingLoad load) {
    this(parent, INTERVAL_NS, counts, messageBytes, load);
  }

  private ProcessMonitor(Parent parent, long periodNs, StreamCounts counts, long messageBytes, CompetingLoad load) {
    this.parent = parent;
    this.periodNs = periodNs;
    this.counts = counts;
    this.messageBytes = messageBytes;
    this.load = load;
    startedNs = System.nanoTime();
    cpuNs = times.read().processNs();
    thread.setDaemon(true);
  }

  /** Watches the collector and its workload (or null) alone: each second, and no intervals. */
  public static ProcessMonitor ofCollector(Parent parent, CompetingLoad load) {
    return new ProcessMonitor(parent, SECOND_NS, null, 0, load);
  }

  /** Begins to send rows, once the agent has had the hello. */
  public void start() {
    thread.start();
  }

  /** Tells the last, shorter interval. */
  @Override
  public void close() {
    closing = true;
    LockSupport.unpark(thread);
    try {
      TimeUnit.SECONDS.timedJoin(thread, TIMEOUT_S);
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    }
  }

  private void run() {
    long second = System.nanoTime() / SECOND_NS;
    boolean last = false;
    while (!last) {
      long untilNs = (System.nanoTime() / periodNs + 1) * periodNs;
      while (!closing && System.nanoTime() < untilNs) {
        LockSupport.parkNanos(untilNs - System.nanoTime());
      }
      // read before counting, so that the last row has everything counted before the closing
      last = closing;
      if (periodNs == INTERVAL_NS) {
        reportInterval();
      }
      // by the clock, not by rows: a pause of the world may take the time of several
      if (last || System.nanoTime() / SECOND_NS > second) {
        reportCollector();
        second = System.nanoTime() / SECOND_NS;
      }
    }
  }

  private void reportInterval() {
    long nowNs = System.nanoTime();
    row[0] = startedNs;
    row[1] = nowNs;
    for (int field = 2; field < ForeignRecord.FIELDS; field++) {
      row[field] = ForeignRecord.ABSENT;
    }
    if (counts != null) {
      row[3] = since(0, counts.messages());
      row[2] = row[3] * messageBytes;
      row[4] = since(1, counts.lost());
      row[5] = since(2, counts.duplicated());
      row[6] = since(3, counts.reordered());
      row[7] = counts.inFlight();
    }
    long allNs = times.read().processNs();
    row[8] = allNs - cpuNs;
    row[9] = Memory.residentBytes();
    cpuNs = allNs;
    startedNs = nowNs;
    parent.ring().offer(Kind.INTERVAL, row, ForeignRecord.FIELDS);
  }

  private long since(int which, long now) {
    if (now == ForeignRecord.ABSENT) {
      return now;
    }
    long more = now - before[which];
    before[which] = now;
    return more;
  }

  private void reportCollector() {
    long collections = 0;
    long collectionMs = 0;
    for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
      collections += Math.max(0, collector.getCollectionCount());
      collectionMs += Math.max(0, collector.getCollectionTime());
    }
    row[0] = System.nanoTime();
    row[1] = collections;
    row[2] = collectionMs * 1_000_000;
    row[3] = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    row[4] = load == null ? ForeignRecord.ABSENT : load.cpuNs();
    row[5] = load == null ? ForeignRecord.ABSENT : load.replaced();
    parent.ring().offer(Kind.COLLECTOR, row, 6);
  }

  /** What a competing load has done so far. */
  public interface CompetingLoad {
    /** CPU time that it used, ns, the collector's included. */
    long cpuNs();

    /** Elements that it dropped and added. */
    long replaced();
  }

  /** Memory of this process. */
  static final class Memory {
    private static final Path STATM = Path.of("/proc/self/statm");

    /** Linux has pages of 4 KiB on x86-64, and on most arm64; /proc/self/smaps has the size on this host. */
    private static final long PAGE_BYTES = pageBytes();

    private Memory() {}

    /** Resident set, bytes, or absent. */
    static long residentBytes() {
      try {
        String[] pages = Files.readString(STATM, StandardCharsets.US_ASCII).split(" ", 3);
        return Long.parseLong(pages[1]) * PAGE_BYTES;
      } catch (IOException | NumberFormatException thrown) {
        return ForeignRecord.ABSENT;
      }
    }

    private static long pageBytes() {
      try (var lines = Files.lines(Path.of("/proc/self/smaps"), StandardCharsets.ISO_8859_1)) {
        String line = lines.filter(one -> one.startsWith("KernelPageSize:")).findFirst().orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", "")) << 10;
      } catch (IOException | RuntimeException thrown) {
        return 4096;
      }
    }
  }
}
