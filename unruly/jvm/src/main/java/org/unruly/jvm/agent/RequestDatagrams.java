package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.socket.DatagramPacket;
import java.net.ProtocolException;

/** The UDP socket of the server: a datagram that is no request of this run is dropped and counted. */
final class RequestDatagrams extends SimpleChannelInboundHandler<DatagramPacket> {
  private final Service service;
  private final Door door;

  RequestDatagrams(Service service, Door door) {
    this.service = service;
    this.door = door;
  }

  @Override
  protected void channelRead0(ChannelHandlerContext context, DatagramPacket packet) {
    ByteBuf request = packet.content();
    ByteBuf reply = context.alloc().ioBuffer();
    boolean appended = false;
    Route route = new Route(context.channel(), packet.sender());
    try {
      if (request.isReadable() && service.codec().requestBytes(request) == request.readableBytes()) {
        appended = service.answer(request, route, reply);
      } else {
        door.refuse();
      }
    } catch (ProtocolException thrown) {
      door.refuse();
    }
    if (appended) {
      route.send(reply);
    } else {
      reply.release();
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
    // of one datagram; the socket stays
  }
}
