package org.unruly.jvm.foreign;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.Parent.Command;

class ForeignRecordTest {
  private static final long ABSENT = ForeignRecord.ABSENT;

  private static Map<String, ForeignRecord> golden() {
    Map<String, ForeignRecord> records = new TreeMap<>();
    records.put("hello", of(Kind.HELLO, 1, -1, 1));
    records.put("interval", of(Kind.INTERVAL, 1, 2, 3, 4, ABSENT, ABSENT, ABSENT, ABSENT, 9, 10));
    records.put("sample", of(Kind.SAMPLE, 1, 2, 3, 4));
    records.put("collector", of(Kind.COLLECTOR, 1, 2, 3, 4, 5, 6));
    records.put("drained", of(Kind.DRAINED, 1, 2));
    records.put("done", of(Kind.DONE));
    records.put("dropped", of(Kind.DROPPED, 1));
    records.put("failure", of(Kind.FAILURE, ForeignRecord.texts("jvm-tcp: zu groß").get(0)));
    records.put("peers", of(Kind.PEERS, 2));
    records.put("words", of(Kind.WORDS, ForeignRecord.texts("0123456789".repeat(9)).get(0)));
    records.put("peer", of(Kind.PEER, 10 << 24 | 77 << 16 | 2, 7000));
    records.put("start", of(Kind.START, 1, 2));
    records.put("stop", of(Kind.STOP));
    records.put("route", of(Kind.ROUTE, 1, 2, 10 << 24 | 77 << 16 | 2, 7000, 1));
    records.put("ask", of(Kind.ASK, 1, 2, 3));
    records.put("sent", of(Kind.SENT, 1, 2, 3));
    records.put("reply", of(Kind.REPLY, 1, 2, 3, 4, 5, 6));
    records.put("failed", of(Kind.FAILED, 1, 2));
    records.put("refused", of(Kind.REFUSED, 1));
    return records;
  }

  private static ForeignRecord of(int kind, long... fields) {
    return new ForeignRecord(kind, fields);
  }

  private static byte[] written(ForeignRecord record) {
    ByteBuffer buffer = ByteBuffer.allocate(ForeignRecord.BYTES);
    ForeignRecord.write(buffer, record.kind(), record.fields(), 0, record.fields().length);
    return buffer.array();
  }

  @Test
  void everyKindIsWrittenAsTheGoldenBytesHaveIt() throws IOException {
    for (var named : golden().entrySet()) {
      assertArrayEquals(Golden.bytes(named.getKey()), written(named.getValue()), named.getKey());
    }
  }

  @Test
  void everyKindIsReadFromTheGoldenBytes() throws IOException {
    for (var named : golden().entrySet()) {
      ForeignRecord read = ForeignRecord.read(ByteBuffer.wrap(Golden.bytes(named.getKey())));
      long[] given = named.getValue().fields();
      assertEquals(named.getValue().kind(), read.kind(), named.getKey());
      for (int field = 0; field < ForeignRecord.FIELDS; field++) {
        assertEquals(field < given.length ? given[field] : ABSENT, read.fields()[field], named.getKey() + " " + field);
      }
    }
  }

  @Test
  void aPeerIsReadAsAnAddress() throws IOException {
    Command command = Command.of(ForeignRecord.read(ByteBuffer.wrap(Golden.bytes("peer"))));
    assertEquals("/10.77.0.2:7000", command.peer().toString());
  }

  @Test
  void aRecordWithAnyBitChangedIsRefused() throws IOException {
    byte[] whole = Golden.bytes("sample");
    for (int bit = 0; bit < (ForeignRecord.BYTES - Integer.BYTES) * Byte.SIZE; bit++) {
      byte[] changed = whole.clone();
      changed[bit / Byte.SIZE] ^= (byte) (1 << bit % Byte.SIZE);
      assertThrows(Problem.class, () -> ForeignRecord.read(ByteBuffer.wrap(changed)), "bit " + bit);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 39, 40, 60, 79, 80, 81, 300})
  void aTextIsWholeInItsPartsAndEachOfWholeCharacters(int length) {
    String text = "x" + "ö".repeat(length);
    List<String> parts = parts(text);
    assertEquals(text, String.join("", parts));
    assertTrue(parts.stream().noneMatch(part -> part.contains("\uFFFD")), "no character is cut");
  }

  @Test
  void aTextOfMoreThanItsRecordsIsCut() {
    List<String> parts = parts("x".repeat(5000));
    assertEquals("x".repeat(800), String.join("", parts));
  }

  private static List<String> parts(String text) {
    return ForeignRecord.texts(text).stream().map(ForeignRecordTest::text).toList();
  }

  private static String text(long[] fields) {
    ByteBuffer bytes = ByteBuffer.allocate(ForeignRecord.TEXT_BYTES);
    bytes.asLongBuffer().put(fields);
    return new String(bytes.array(), StandardCharsets.UTF_8).replace("\0", "");
  }
}
