package org.unruly.jvm.foreign;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.unruly.jvm.foreign.ForeignRecord.Kind;

class RecordRingTest {
  private static final int PRODUCERS = 3;

  private static List<ForeignRecord> drained(RecordRing ring, int room) {
    ByteBuffer buffer = ByteBuffer.allocate(room * ForeignRecord.BYTES);
    int taken = ring.drain(buffer);
    List<ForeignRecord> records = new ArrayList<>();
    buffer.flip();
    while (buffer.hasRemaining()) {
      records.add(ForeignRecord.read(buffer));
    }
    assertEquals(taken, records.size());
    return records;
  }

  @Test
  void recordsComeOutInTheOrderTheyWentIn() {
    RecordRing ring = new RecordRing(8);
    for (long round = 0; round < 100; round++) {
      assertTrue(ring.offer(Kind.SAMPLE, new long[] {round, 7}, 2));
      assertTrue(ring.offer(Kind.DONE, new long[] {}, 0));
      List<ForeignRecord> records = drained(ring, 8);
      assertEquals(2, records.size());
      assertEquals(round, records.get(0).fields()[0]);
      assertEquals(7, records.get(0).fields()[1]);
      assertEquals(ForeignRecord.ABSENT, records.get(0).fields()[2]);
      assertEquals(Kind.DONE, records.get(1).kind());
    }
  }

  @Test
  void aFullRingDropsTheNewOnesAndCountsThem() {
    RecordRing ring = new RecordRing(4);
    for (long offered = 0; offered < 10; offered++) {
      assertEquals(offered < 4, ring.offer(Kind.SAMPLE, new long[] {offered}, 1));
    }
    assertEquals(6, ring.takeDropped());
    assertEquals(0, ring.takeDropped());
    assertEquals(3, drained(ring, 3).get(2).fields()[0] + 1);
    assertTrue(ring.offer(Kind.SAMPLE, new long[] {10}, 1));
    assertEquals(List.of(3L, 10L), drained(ring, 8).stream().map(record -> record.fields()[0]).toList());
  }

  @Test
  void whoTriesAgainIsNotCountedAsADrop() {
    RecordRing ring = new RecordRing(2);
    assertTrue(ring.tryOffer(Kind.DONE, new long[] {}, 0));
    assertTrue(ring.tryOffer(Kind.DONE, new long[] {}, 0));
    assertFalse(ring.tryOffer(Kind.DONE, new long[] {}, 0));
    assertEquals(0, ring.takeDropped());
  }

  @Test
  void ofSeveralProducersEveryRecordComesOrIsCounted() throws InterruptedException {
    RecordRing ring = new RecordRing(64);
    int each = 20_000;
    List<Thread> producers = new ArrayList<>();
    for (int producer = 0; producer < PRODUCERS; producer++) {
      int mine = producer;
      producers.add(new Thread(() -> {
        for (long sequence = 0; sequence < each; sequence++) {
          ring.offer(Kind.SAMPLE, new long[] {mine, sequence, mine * 1_000_000L + sequence}, 3);
        }
      }));
    }
    producers.forEach(Thread::start);
    long[] last = {-1, -1, -1};
    long come = 0;
    boolean running = true;
    while (running) {
      running = producers.stream().anyMatch(Thread::isAlive);
      for (ForeignRecord record : drained(ring, 64)) {
        int producer = (int) record.fields()[0];
        assertTrue(record.fields()[1] > last[producer]);
        assertEquals(producer * 1_000_000L + record.fields()[1], record.fields()[2]);
        last[producer] = record.fields()[1];
        come++;
      }
    }
    come += drained(ring, 64).size();
    assertEquals(PRODUCERS * each, come + ring.takeDropped());
  }
}
