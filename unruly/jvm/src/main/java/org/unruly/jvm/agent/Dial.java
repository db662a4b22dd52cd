package org.unruly.jvm.agent;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.unix.Errors;
import java.net.ConnectException;
import java.net.PortUnreachableException;

/** How a peer is connected to. */
final class Dial {
  /** Netty has no type for it; its words are the system's, in the system's language. */
  private static final String REFUSED =
      new Errors.NativeIoException("", Errors.ERROR_ECONNREFUSED_NEGATIVE).getMessage();

  private final Peer peer;
  private final Codec codec;
  private final PeerConnection connection;
  private final Bootstrap bootstrap;

  Dial(Peer peer, Codec codec, EventLoop loop, PeerConnection connection) {
    this.peer = peer;
    this.codec = codec;
    this.connection = connection;
    bootstrap = peer.datagrams() ? datagrams() : streams();
    bootstrap.group(loop).disableResolver();
    bootstrap.handler(
        new ChannelInitializer<Channel>() {
          @Override
          protected void initChannel(Channel channel) {
            channel.pipeline().addLast(handler());
          }
        });
  }

  /** Begins to connect. */
  ChannelFuture connect() {
    return bootstrap.connect(peer.address());
  }

  /** Whether the peer's host refuses: of a datagram the next one tells, or a read. */
  static boolean isRefused(Throwable thrown) {
    if (thrown instanceof PortUnreachableException) {
      return true;
    } else if (thrown instanceof Errors.NativeIoException coded) {
      return coded.expectedErr() == Errors.ERROR_ECONNREFUSED_NEGATIVE;
    }
    return thrown instanceof ConnectException && String.valueOf(thrown.getMessage()).contains(REFUSED);
  }

  private ChannelHandler handler() {
    return peer.datagrams() ? new ReplyDatagrams(codec, connection) : new ReplyStream(codec, connection);
  }

  private Bootstrap streams() {
    return new Bootstrap()
        .channel(EpollSocketChannel.class)
        .option(ChannelOption.TCP_NODELAY, true)
        // the kernel's own patience, as that of the clients in Rust
        .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, 0);
  }

  private Bootstrap datagrams() {
    int room = codec.replyBytes(Head.BODY) + 1;
    return new Bootstrap()
        .channel(EpollDatagramChannel.class)
        .option(ChannelOption.SO_RCVBUF, Server.DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.SO_SNDBUF, Server.DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.RCVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(Math.min(room, 1 << 16)));
  }
}
