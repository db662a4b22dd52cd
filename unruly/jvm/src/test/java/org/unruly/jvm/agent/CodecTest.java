package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.foreign.Golden;

class CodecTest {
  private static final Codec CODEC = new Codec(0x01020304, 5);
  private static final Head HEAD = new Head(Head.HASH | Head.BODY, 0x1112131415161718L, 0x2122, 0x3132);
  private static final Stamps STAMPS = new Stamps(1, 2, 3);

  private static byte[] request(Codec codec, Head head) {
    ByteBuf buffer = Unpooled.buffer();
    codec.writeRequest(buffer, head);
    return ByteBufUtil.getBytes(buffer);
  }

  private static byte[] reply(Codec codec, Head head) {
    ByteBuf buffer = Unpooled.buffer();
    codec.writeReply(buffer, head, STAMPS);
    return ByteBufUtil.getBytes(buffer);
  }

  @Test
  void messagesAreWrittenAsTheGoldenBytesHaveThem() throws IOException {
    assertArrayEquals(Golden.wire("request"), request(CODEC, HEAD));
    assertArrayEquals(Golden.wire("reply"), reply(CODEC, HEAD));
  }

  @Test
  void messagesAreReadFromTheGoldenBytes() throws IOException {
    ByteBuf request = Unpooled.wrappedBuffer(Golden.wire("request"));
    assertEquals(request.readableBytes(), CODEC.requestBytes(request));
    assertEquals(HEAD, Head.of(request));
    ByteBuf reply = Unpooled.wrappedBuffer(Golden.wire("reply"));
    assertEquals(reply.readableBytes(), CODEC.replyBytes(reply));
    assertEquals(HEAD, Head.of(reply));
    assertEquals(STAMPS, Stamps.of(reply));
  }

  @Test
  void sizesAreThoseOfThePaper() {
    assertEquals(28, request(CODEC, new Head(0, 1, 2, 3)).length);
    assertEquals(44, reply(CODEC, new Head(0, 1, 2, 3)).length);
  }

  @Test
  void anyCutAsksForMoreAndTheWholeReadsBack() throws IOException {
    for (int flags = 0; flags < 8; flags++) {
      Head head = new Head(flags, 7, 8, 9);
      byte[] request = request(CODEC, head);
      for (int cut = 0; cut < request.length; cut++) {
        assertEquals(0, CODEC.requestBytes(Unpooled.wrappedBuffer(request, 0, cut)), "request " + cut);
      }
      byte[] reply = reply(CODEC, head);
      for (int cut = 0; cut < reply.length; cut++) {
        assertEquals(0, CODEC.replyBytes(Unpooled.wrappedBuffer(reply, 0, cut)), "reply " + cut);
      }
      // the bytes after it belong to the next message
      ByteBuf more = Unpooled.wrappedBuffer(request, reply);
      assertEquals(request.length, CODEC.requestBytes(more));
      assertEquals(head, Head.of(more));
      more.skipBytes(request.length);
      assertEquals(reply.length, CODEC.replyBytes(more));
    }
  }

  @Test
  void aRequestWithAnyBitOfItsHeadChangedIsRefused() {
    byte[] whole = request(CODEC, HEAD);
    for (int bit = 0; bit < Codec.REQUEST_BYTES * Byte.SIZE; bit++) {
      byte[] changed = whole.clone();
      changed[bit / Byte.SIZE] ^= (byte) (1 << bit % Byte.SIZE);
      assertThrows(ProtocolException.class, () -> CODEC.requestBytes(Unpooled.wrappedBuffer(changed)), "bit " + bit);
    }
  }

  @Test
  void garbageIsNoMessage() {
    Random random = new Random(1);
    for (int round = 0; round < 1000; round++) {
      byte[] garbage = new byte[2 + random.nextInt(200)];
      random.nextBytes(garbage);
      garbage[0] = 0x54;
      assertThrows(ProtocolException.class, () -> CODEC.requestBytes(Unpooled.wrappedBuffer(garbage)));
      assertThrows(ProtocolException.class, () -> CODEC.replyBytes(Unpooled.wrappedBuffer(garbage)));
    }
  }

  @Test
  void aLengthThatTheRunDoesNotUseIsRefusedBeforeItIsWaitedFor() {
    byte[] head = java.util.Arrays.copyOf(request(new Codec(CODEC.cookie(), 1 << 20), HEAD), Codec.REQUEST_BYTES);
    assertThrows(ProtocolException.class, () -> CODEC.requestBytes(Unpooled.wrappedBuffer(head)));
  }

  @Test
  void aMessageOfAnotherRunIsRefusedInBothDirections() throws IOException {
    Codec other = new Codec(CODEC.cookie() + 1, CODEC.bodyBytes());
    byte[] request = request(other, HEAD);
    assertEquals(request.length, other.requestBytes(Unpooled.wrappedBuffer(request)));
    assertThrows(ProtocolException.class, () -> CODEC.requestBytes(Unpooled.wrappedBuffer(request)));
    byte[] reply = reply(other, HEAD);
    assertEquals(reply.length, other.replyBytes(Unpooled.wrappedBuffer(reply)));
    assertThrows(ProtocolException.class, () -> CODEC.replyBytes(Unpooled.wrappedBuffer(reply)));
  }

  @Test
  void aMessageOfTheOtherDirectionIsRefused() {
    assertThrows(ProtocolException.class, () -> CODEC.replyBytes(Unpooled.wrappedBuffer(request(CODEC, HEAD))));
    assertThrows(ProtocolException.class, () -> CODEC.requestBytes(Unpooled.wrappedBuffer(reply(CODEC, HEAD))));
  }
}
