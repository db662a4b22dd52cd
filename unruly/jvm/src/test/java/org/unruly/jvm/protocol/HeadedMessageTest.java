package org.unruly.jvm.protocol;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Arrays;
import org.jgroups.BytesMessage;
import org.jgroups.Message;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.protocol.JGroupsMember.HeadedMessage;

class HeadedMessageTest {
  @ParameterizedTest
  @ValueSource(ints = {32, 33, 2_000})
  void itIsWrittenAsAMessageThatHasAllItsBytes(int length) throws IOException {
    byte[] bytes = new byte[length];
    for (int at = 0; at < length; at++) {
      bytes[at] = (byte) at;
    }
    Message plain = new BytesMessage(null, bytes.clone());
    byte[] head = Arrays.copyOf(bytes, 32);
    // the writer writes the next head there meanwhile
    Arrays.fill(bytes, 0, 32, (byte) 99);
    Message headed = new HeadedMessage(head, bytes);
    assertEquals(plain.getType(), headed.getType());
    assertEquals(plain.getLength(), headed.getLength());
    assertEquals(plain.size(), headed.size());
    assertArrayEquals(plain.getArray(), headed.getArray());
    assertArrayEquals(written(plain), written(headed));
    // what a member has missed is sent again as a copy
    assertArrayEquals(written(plain), written(headed.copy(true, true)));
  }

  private static byte[] written(Message message) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    message.writeTo(new DataOutputStream(out));
    return out.toByteArray();
  }
}
