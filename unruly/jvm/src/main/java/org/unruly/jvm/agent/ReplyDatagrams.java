package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.socket.DatagramPacket;
import java.net.ProtocolException;

/** Replies of a UDP socket, one a datagram; a datagram that is none is noise. */
final class ReplyDatagrams extends SimpleChannelInboundHandler<DatagramPacket> {
  private final Codec codec;
  private final PeerConnection connection;

  ReplyDatagrams(Codec codec, PeerConnection connection) {
    this.codec = codec;
    this.connection = connection;
  }

  @Override
  protected void channelRead0(ChannelHandlerContext context, DatagramPacket packet) {
    // the read has just returned
    long readNs = System.nanoTime();
    ByteBuf reply = packet.content();
    try {
      int length = codec.replyBytes(reply);
      if (length > 0) {
        connection.replied(reply, length, readNs);
        connection.flush();
      }
    } catch (ProtocolException thrown) {
      // someone else's
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext context) {
    connection.broken(context.channel(), Failure.RESET);
  }

  /** Nobody listens there; of other errors the socket stays. */
  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
    if (Dial.isRefused(thrown)) {
      connection.broken(context.channel(), Failure.REFUSED);
    }
  }
}
