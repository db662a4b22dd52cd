package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.io.ByteArrayInputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The lines that a client reads. */
class LineReaderTest {
  private static InputStream input(String text) {
    return new ByteArrayInputStream(text.getBytes(StandardCharsets.US_ASCII));
  }

  private static LineReader line(String text) throws IOException {
    LineReader reader = new LineReader(input(text + "\n"));
    assertTrue(reader.next());
    return reader;
  }

  @Test
  void linesInPiecesOfAnyLengthAreRead() throws IOException {
    String text = "unruly 1 - 5\ncall 9223372036854775807 0 4\n\ncall 2 30 65536\n";
    for (int piece = 1; piece <= text.length(); piece++) {
      int most = piece;
      InputStream pieces =
          new FilterInputStream(input(text)) {
            @Override
            public int read(byte[] bytes, int from, int length) throws IOException {
              return super.read(bytes, from, Math.min(length, most));
            }
          };
      LineReader reader = new LineReader(pieces);
      assertTrue(reader.next());
      assertEquals("unruly 1 - 5", reader.text());
      assertTrue(reader.next() && reader.isCall());
      assertEquals(Long.MAX_VALUE, reader.number());
      assertTrue(reader.next());
      assertFalse(reader.isCall());
      assertTrue(reader.next() && reader.isCall());
      assertEquals(2, reader.number());
      assertEquals(30, reader.number());
      assertEquals(65_536, reader.number());
      reader.finish();
      assertFalse(reader.next());
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "call 1 2", "call 1  2", "call 1 2 ", "call 1 -2 3", "call 1 2 3x", "call 1 2 3 4",
        "call 9223372036854775808 2 3", "call 1 2 3\r"
      })
  void aLineThatIsNoCallIsAnError(String text) throws IOException {
    LineReader reader = line(text);
    assertTrue(reader.isCall());
    assertThrows(
        IOException.class,
        () -> {
          reader.number();
          reader.number();
          reader.number();
          reader.finish();
        });
  }

  @Test
  void aLineWithoutEndIsAnError() {
    LineReader reader = new LineReader(input("call ".repeat(20_000)));
    assertThrows(IOException.class, reader::next);
  }

  @Test
  void requestsMakeNoGarbage() throws IOException {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    LineReader reader = new LineReader(input("call 12345 7 65536\n".repeat(20_000)));
    long before = threads.getCurrentThreadAllocatedBytes();
    long sum = 0;
    while (reader.next() && reader.isCall()) {
      sum += reader.number() + reader.number() + reader.number();
      reader.finish();
    }
    long allocated = threads.getCurrentThreadAllocatedBytes() - before;
    assertEquals(20_000L * (12_345 + 7 + 65_536), sum);
    assertTrue(allocated < 10_000, allocated + " bytes");
  }
}
