package org.unruly.jvm.agent;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.unix.Errors;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.DecoderException;
import java.net.ConnectException;
import java.net.PortUnreachableException;
import java.net.ProtocolException;
import java.util.List;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.OutcomeReporter.Failure;
import org.unruly.jvm.agent.PeerConnection.Peer;

/** Opens TCP connections and UDP sockets to one peer. */
final class PeerConnector {
  /** Message text of a refused connection, in the language of the system. Netty has no exception type for it. */
  private static final String REFUSED =
      new Errors.NativeIoException("", Errors.ERROR_ECONNREFUSED_NEGATIVE).getMessage();

  private final Peer peer;
  private final Codec codec;
  private final PeerConnection connection;
  private final Bootstrap bootstrap;

  PeerConnector(Peer peer, Codec codec, EventLoop loop, PeerConnection connection) {
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

  /** Starts connecting and returns the future of the connection. */
  ChannelFuture connect() {
    return bootstrap.connect(peer.address());
  }

  /** Returns true if the peer's host refused. For UDP, a later send or read reports the refusal. */
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
        // 0 = the kernel's timeout, as the Rust clients have it
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

  /** Reads replies from a UDP socket, one per datagram. It ignores every other datagram. */
  static final class ReplyDatagrams extends SimpleChannelInboundHandler<DatagramPacket> {
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
        // not a reply of this run
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
      connection.broken(context.channel(), Failure.RESET);
    }

    /** Closes the socket if the peer refused. Other errors leave it open. */
    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
      if (PeerConnector.isRefused(thrown)) {
        connection.broken(context.channel(), Failure.REFUSED);
      }
    }
  }

  /** Reads replies from a TCP connection. */
  static final class ReplyStream extends ByteToMessageDecoder {
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
        // Netty would otherwise decode these bytes again when the connection closes
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
}
