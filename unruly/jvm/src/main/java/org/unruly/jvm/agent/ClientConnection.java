package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.util.concurrent.Future;
import java.net.ProtocolException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.agent.Server.Limits;
import org.unruly.jvm.agent.Service.ReplyRoute;

/** A TCP connection of the server. It trusts nobody: see {@link ConnectionLimiter} for who may stay. */
final class ClientConnection extends ByteToMessageDecoder {
  private final Service service;
  private final ConnectionLimiter limiter;
  private final Limits limits;
  private boolean entered;
  private boolean known;
  private ReplyRoute route;
  private Future<?> identifyTimer;
  private Future<?> unread;
  private ByteBuf replies;

  ClientConnection(Service service, ConnectionLimiter limiter, Limits limits) {
    this.service = service;
    this.limiter = limiter;
    this.limits = limits;
  }

  @Override
  public void channelActive(ChannelHandlerContext context) {
    entered = limiter.enter(context.channel());
    if (!entered) {
      context.close();
      return;
    }
    route = new ReplyRoute(context.channel(), null);
    identifyTimer = context.executor().schedule(() -> context.close(), limits.identifyTimeoutNs(), TimeUnit.NANOSECONDS);
  }

  @Override
  public void channelRead(ChannelHandlerContext context, Object bytes) throws Exception {
    super.channelRead(context, bytes);
    // one write answers all requests of one read
    if (replies != null) {
      route.send(replies);
      replies = null;
    }
  }

  @Override
  protected void decode(ChannelHandlerContext context, ByteBuf bytes, List<Object> none) throws ProtocolException {
    try {
      int length = service.codec().requestBytes(bytes);
      if (length > 0) {
        identify(context);
        replies = replies == null ? context.alloc().ioBuffer() : replies;
        service.answer(bytes.readSlice(length), route, replies);
      }
    } catch (ProtocolException thrown) {
      // or it would be looked at once more at the connection's end
      bytes.skipBytes(bytes.readableBytes());
      throw thrown;
    }
  }

  private void identify(ChannelHandlerContext context) {
    if (!known) {
      known = true;
      identifyTimer.cancel(false);
      limiter.identify(context.channel());
    }
  }

  /** Stops reading from a client that does not read its replies, and closes it after a time. */
  @Override
  public void channelWritabilityChanged(ChannelHandlerContext context) {
    boolean writable = context.channel().isWritable();
    context.channel().config().setAutoRead(writable);
    if (!writable && unread == null) {
      unread = context.executor().schedule(() -> context.close(), limits.unreadNs(), TimeUnit.NANOSECONDS);
    } else if (writable && unread != null) {
      unread.cancel(false);
      unread = null;
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext context) throws Exception {
    super.channelInactive(context);
    for (Future<?> timer : new Future<?>[] {identifyTimer, unread}) {
      if (timer != null) {
        timer.cancel(false);
      }
    }
    if (entered) {
      entered = false;
      limiter.leave(context.channel());
    }
  }

  @Override
  protected void handlerRemoved0(ChannelHandlerContext context) {
    if (replies != null) {
      replies.release();
      replies = null;
    }
  }

  /** Whatever went wrong, its client sees that the connection has ended. */
  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
    context.close();
  }
}
