package org.unruly.jvm.bench;

import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.RecordRing;
import org.unruly.jvm.stream.Accounting;
import org.unruly.jvm.stream.Header;

/** What is done for each message, apart from the protocol, in ns. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(2)
public class HotPaths {
  private static final int MESSAGE_BYTES = 2000;
  private static final int COOKIE = 7;
  private static final int BATCH = 256;

  private final ByteBuffer heap = ByteBuffer.allocate(MESSAGE_BYTES);
  private final ByteBuffer direct = ByteBuffer.allocateDirect(MESSAGE_BYTES);
  private final Accounting inOrder = new Accounting();
  private final Accounting lossy = new Accounting();
  private final RecordRing ring = new RecordRing(1024);
  private final ByteBuffer batch = ByteBuffer.allocateDirect(BATCH * ForeignRecord.BYTES);
  private final long[] sample = {1, 2, 3, 4};
  private long sequence;
  private long lossySequence;

  /** Heads that are ours. */
  @Setup
  public void writeHeads() {
    Header.writeCommon(heap, COOKIE, MESSAGE_BYTES);
    Header.writeCommon(direct, COOKIE, MESSAGE_BYTES);
  }

  /** The head of a message in an array. */
  @Benchmark
  public ByteBuffer headWrittenToAnArray() {
    Header.write(heap, 0, sequence++, 0);
    return heap;
  }

  /** The head of a message in a direct buffer. */
  @Benchmark
  public ByteBuffer headWrittenToADirectBuffer() {
    Header.write(direct, 0, sequence++, 0);
    return direct;
  }

  /** What a reader looks at. */
  @Benchmark
  public long headRead() {
    return Header.isOurs(direct, 0, COOKIE, MESSAGE_BYTES) ? Header.sequence(direct, 0) + Header.flags(direct, 0) : -1;
  }

  /** A message in its order. */
  @Benchmark
  public long messageAccounted() {
    inOrder.accept(sequence++);
    return inOrder.next();
  }

  /** A message of a stream of which every third is lost. */
  @Benchmark
  public long messageAccountedAmongLosses() {
    lossySequence += lossySequence % 3 == 1 ? 2 : 1;
    lossy.accept(lossySequence);
    return lossy.lost();
  }

  /** A sample into the ring, and its share of taking a batch out and encoding it. */
  @Benchmark
  public int sampleThroughTheRing() {
    if (!ring.offer(Kind.SAMPLE, sample, sample.length)) {
      ring.drain(batch.clear());
    }
    return batch.position();
  }

  /** The clock, which is read once for each message. */
  @Benchmark
  public long clock() {
    return System.nanoTime();
  }
}
