package org.unruly.jvm.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.unruly.jvm.foreign.Golden;

class HeaderTest {
  private static final int COOKIE = 0xf1020304;
  private static final long SEQUENCE = 0x1112131415161718L;

  @Test
  void headsAreWrittenAsTheGoldenBytesHaveThem() throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(Header.BYTES);
    Header.writeCommon(buffer, COOKIE, 2000);
    Header.write(buffer, Header.STAMPED, SEQUENCE, 1);
    assertArrayEquals(Golden.bytes("stamped"), buffer.array());
    Header.write(buffer, Header.END, SEQUENCE, 0);
    assertArrayEquals(Golden.bytes("end"), buffer.array());
  }

  @Test
  void headsAreReadFromTheGoldenBytes() throws IOException {
    ByteBuffer buffer = ByteBuffer.wrap(Golden.bytes("stamped"));
    assertTrue(Header.isOurs(buffer, 0, COOKIE, 2000));
    assertEquals(Header.STAMPED, Header.flags(buffer, 0));
    assertEquals(SEQUENCE, Header.sequence(buffer, 0));
    assertEquals(1, Header.stampNs(buffer, 0));
  }

  @Test
  void anotherMagicCookieOrLengthIsNotOurs() throws IOException {
    byte[] whole = Golden.bytes("stamped");
    for (int changed : new int[] {0, 4, 12}) {
      byte[] other = whole.clone();
      other[changed] ^= 1;
      assertFalse(Header.isOurs(ByteBuffer.wrap(other), 0, COOKIE, 2000), "byte " + changed);
    }
  }
}
