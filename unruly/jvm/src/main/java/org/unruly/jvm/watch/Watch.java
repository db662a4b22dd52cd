package org.unruly.jvm.watch;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Kind;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.stream.Tally;

/**
 * Tells each 100 ms what this process did, and each second what its collector did, or the latter alone.
 *
 * <p>Intervals end at whole multiples of 100 ms of CLOCK_MONOTONIC, so that those of several processes of a host meet.
 */
public final class Watch implements AutoCloseable {
  /** Length of an interval, ns. */
  public static final long INTERVAL_NS = 100_000_000;

  private static final long SECOND_NS = 1_000_000_000;

  /** The last row is waited for through pauses of the world, or the sums of rows would lack it. */
  private static final long PATIENCE_S = 10;

  private final Parent parent;
  private final long periodNs;
  private final Tally tally;
  private final long messageBytes;
  private final Competition competition;
  private final TaskTimes times = new TaskTimes();
  private final Thread thread = new Thread(this::run, "watch");
  private final long[] row = new long[ForeignRecord.FIELDS];
  private final long[] before = new long[4];
  private volatile boolean closing;
  private long startedNs;
  private long cpuNs;

  /**
   * Begins to watch.
   *
   * @param tally of the stream, or null without one
   * @param messageBytes of each of its messages
   * @param competition the collector's workload, or null without one
   */
  public Watch(Parent parent, Tally tally, long messageBytes, Competition competition) {
    this(parent, INTERVAL_NS, tally, messageBytes, competition);
  }

  private Watch(Parent parent, long periodNs, Tally tally, long messageBytes, Competition competition) {
    this.parent = parent;
    this.periodNs = periodNs;
    this.tally = tally;
    this.messageBytes = messageBytes;
    this.competition = competition;
    startedNs = System.nanoTime();
    cpuNs = times.read().processNs();
    thread.setDaemon(true);
    thread.start();
  }

  /** Begins to watch the collector and its workload (or null) alone: each second, and no intervals. */
  public static Watch ofCollector(Parent parent, Competition competition) {
    return new Watch(parent, SECOND_NS, null, 0, competition);
  }

  /** Tells the last, shorter interval. */
  @Override
  public void close() {
    closing = true;
    LockSupport.unpark(thread);
    try {
      TimeUnit.SECONDS.timedJoin(thread, PATIENCE_S);
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
      // asked before counting: what was counted before the closing is then in the last row
      last = closing;
      if (periodNs == INTERVAL_NS) {
        tellInterval();
      }
      // by the clock, not by rows: a pause of the world may take the time of several
      if (last || System.nanoTime() / SECOND_NS > second) {
        tellCollector();
        second = System.nanoTime() / SECOND_NS;
      }
    }
  }

  private void tellInterval() {
    long nowNs = System.nanoTime();
    row[0] = startedNs;
    row[1] = nowNs;
    for (int field = 2; field < ForeignRecord.FIELDS; field++) {
      row[field] = ForeignRecord.ABSENT;
    }
    if (tally != null) {
      row[3] = since(0, tally.messages());
      row[2] = row[3] * messageBytes;
      row[4] = since(1, tally.lost());
      row[5] = since(2, tally.duplicated());
      row[6] = since(3, tally.reordered());
      row[7] = tally.inFlight();
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

  private void tellCollector() {
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
    row[4] = competition == null ? ForeignRecord.ABSENT : competition.cpuNs();
    row[5] = competition == null ? ForeignRecord.ABSENT : competition.replaced();
    parent.ring().offer(Kind.COLLECTOR, row, 6);
  }
}
