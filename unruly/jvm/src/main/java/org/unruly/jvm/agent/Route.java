package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.socket.DatagramPacket;
import java.net.InetSocketAddress;

/**
 * Where a reply goes.
 *
 * @param channel a connection, or the socket of the datagrams
 * @param to whom a datagram goes; null on a connection
 */
record Route(Channel channel, InetSocketAddress to) {
  /** Sends a whole reply; on the channel's event loop. */
  void send(ByteBuf reply) {
    if (to == null) {
      channel.writeAndFlush(reply);
    } else if (channel.isWritable()) {
      channel.writeAndFlush(new DatagramPacket(reply, to));
    } else {
      // a datagram that does not go is lost, as on any network
      reply.release();
    }
  }
}
