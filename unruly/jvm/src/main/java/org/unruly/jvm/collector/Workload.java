package org.unruly.jvm.collector;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.util.List;
import org.unruly.jvm.Options;
import org.unruly.jvm.Problem;

/**
 * How much a collector's workload keeps alive, and how much CPU it uses.
 *
 * @param liveBytes of the structure
 * @param occupancy share of the cores that the load uses, its collector included
 * @param cores that the host has for it
 */
public record Workload(long liveBytes, double occupancy, int cores) {
  private static final long LIVE_BYTES_MIN = 1 << 20;
  private static final int CORES_MAX = 1024;
  private static final int WORKERS_PER_CORE = 2;

  /** The workload beside another run, or null when the command line wants none. */
  public static Workload competing(Options options) {
    boolean competes = options.has("compete") && options.oneOf("compete", List.of("none", "gc")).equals("gc");
    return competes ? of(options) : null;
  }

  /** The workload of a command line; a live size that the heap has no room for is a problem. */
  public static Workload of(Options options) {
    Workload workload =
        new Workload(
            options.number("live", LIVE_BYTES_MIN, Long.MAX_VALUE),
            options.share("occupancy"),
            (int) options.number("cores", 1, CORES_MAX));
    workload.check(Runtime.getRuntime().maxMemory(), roomBytes());
    return workload;
  }

  /**
   * Whether the structure fits.
   *
   * @param heapBytes the most that the heap may grow to
   * @param roomBytes the most that the part of it may grow to where objects grow old
   */
  void check(long heapBytes, long roomBytes) {
    if (liveBytes >= heapBytes) {
      String wrong = "live is " + liveBytes + " bytes in a heap of " + heapBytes;
      throw new Problem("collector", wrong, "a heap larger than what lives in it", "-Xmx" + hintMb(4.0 / 3) + "m, or a smaller live");
    }
    if (liveBytes >= roomBytes) {
      String wrong = "live is " + liveBytes + " bytes, but the old generation has " + roomBytes + " of the heap's " + heapBytes;
      throw new Problem("collector", wrong, "an old generation larger than what lives", "a smaller young one, such as -Xmn" + (heapBytes - liveBytes >> 21) + "m");
    }
  }

  /**
   * Threads that replace elements: more than cores, since the scheduler deals by thread, and beside as many busy ones as
   * cores no more than half would be had.
   */
  int workers() {
    return WORKERS_PER_CORE * cores;
  }

  /** CPU time each second, ns. */
  double targetNs() {
    return occupancy * cores * 1e9;
  }

  private long hintMb(double times) {
    return (long) Math.ceil(liveBytes * times / (1 << 20));
  }

  /** Generations with a fixed border (Serial, Parallel) have less room for what lives than the heap has. */
  private static long roomBytes() {
    long mostBytes = 0;
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      if (pool.getType() == MemoryType.HEAP) {
        long poolBytes = pool.getUsage().getMax();
        mostBytes = Math.max(mostBytes, poolBytes < 0 ? Runtime.getRuntime().maxMemory() : poolBytes);
      }
    }
    return mostBytes;
  }
}
