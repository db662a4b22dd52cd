package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.DecoderException;
import java.net.ProtocolException;
import java.util.List;

/** Replies of a TCP connection. */
final class ReplyStream extends ByteToMessageDecoder {
  private final Codec codec;
  private final PeerConnection connection;
  private long readNs;

  ReplyStream(Codec codec, PeerConnection connection) {
    this.codec = codec;
    this.connection = connection;
  }

  @Override
  public void channelRead(ChannelHandlerContext context, Object bytes) throws Exception {
    // the read has just returned
    readNs = System.nanoTime();
    super.channelRead(context, bytes);
    connection.flush();
  }

  @Override
  protected void decode(ChannelHandlerContext context, ByteBuf bytes, List<Object> none) throws ProtocolException {
    try {
      int length = codec.replyBytes(bytes);
      if (length > 0) {
        connection.replied(bytes, length, readNs);
        bytes.skipBytes(length);
      }
    } catch (ProtocolException thrown) {
      // or it would be looked at once more at the connection's end
      bytes.skipBytes(bytes.readableBytes());
      throw thrown;
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext context) throws Exception {
    super.channelInactive(context);
    connection.broken(context.channel(), Failure.RESET);
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
    connection.broken(context.channel(), thrown instanceof DecoderException ? Failure.PROTOCOL : Failure.RESET);
  }
}
