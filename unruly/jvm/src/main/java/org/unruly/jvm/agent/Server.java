package org.unruly.jvm.agent;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.socket.DatagramPacket;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import org.unruly.jvm.Problem;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Service.ReplyRoute;

/** The server side of the group RPC: answers requests of its own run over TCP and UDP, survives everything else. */
public final class Server implements AutoCloseable {
  /** Asked for; the kernel gives what it allows. TCP's buffers grow by themselves, and further than that. */
  static final int DATAGRAM_BUFFER_BYTES = 16 << 20;

  private static final int BACKLOG = 1024;

  /** Replies that a peer has not read; above it is not read from. */
  private static final WriteBufferWaterMark UNREAD = new WriteBufferWaterMark(512 << 10, 1 << 20);

  /** Of a port that the kernel chose for TCP, UDP's may be taken. */
  private static final int ATTEMPTS = 10;

  private static final long TIMEOUT_MS = 1000;

  private final AgentConfig config;
  private final Limits limits;
  private final EventLoopGroup loops;
  private final ConnectionLimiter limiter;
  private final Service service;
  private final ChannelGroup channels;
  private int port;

  private Server(AgentConfig config, Limits limits, EventLoopGroup loops) {
    this.config = config;
    this.limits = limits;
    this.loops = loops;
    limiter = new ConnectionLimiter(limits);
    service = new Service(config);
    channels = new DefaultChannelGroup(loops.next(), true);
  }

  /** Binds both ports, and serves from then on. */
  public static Server open(AgentConfig config, Limits limits, EventLoopGroup loops) {
    Server server = new Server(config, limits, loops);
    try {
      server.bind();
      return server;
    } catch (RuntimeException thrown) {
      server.close();
      throw thrown;
    }
  }

  /** The port of both. */
  public int port() {
    return port;
  }

  /** Connections and datagrams that were turned away; all of them once the event loops have ended. */
  public long refused() {
    return limiter.refused();
  }

  @Override
  public void close() {
    service.close();
    channels.close().awaitUninterruptibly(TIMEOUT_MS);
  }

  private void bind() {
    for (int attempt = 1; ; attempt++) {
      ChannelFuture stream = streams().bind(config.listen()).awaitUninterruptibly();
      if (!stream.isSuccess()) {
        throw notOpened("TCP", config.listenText(), stream.cause());
      }
      InetSocketAddress bound = (InetSocketAddress) stream.channel().localAddress();
      ChannelFuture datagram = datagrams().bind(bound).awaitUninterruptibly();
      if (datagram.isSuccess()) {
        port = bound.getPort();
        channels.add(stream.channel());
        channels.add(datagram.channel());
        return;
      }
      stream.channel().close().awaitUninterruptibly();
      if (config.listen().getPort() != 0 || attempt == ATTEMPTS) {
        throw notOpened("UDP", bound.getAddress().getHostAddress() + ":" + bound.getPort(), datagram.cause());
      }
    }
  }

  private ServerBootstrap streams() {
    return new ServerBootstrap()
        .group(loops)
        .channel(EpollServerSocketChannel.class)
        .option(ChannelOption.SO_BACKLOG, BACKLOG)
        .option(ChannelOption.SO_REUSEADDR, true)
        .childOption(ChannelOption.TCP_NODELAY, true)
        .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, UNREAD)
        .childHandler(
            new ChannelInitializer<Channel>() {
              @Override
              protected void initChannel(Channel connection) {
                channels.add(connection);
                connection.pipeline().addLast(new ClientConnection(service, limiter, limits));
              }
            });
  }

  private Bootstrap datagrams() {
    // one byte more than the longest request, so that none looks whole that is not
    int room = config.codec().requestBytes(Head.BODY) + 1;
    return new Bootstrap()
        .group(loops)
        .channel(EpollDatagramChannel.class)
        .option(ChannelOption.SO_RCVBUF, DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.SO_SNDBUF, DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.RCVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(Math.min(room, 1 << 16)))
        .handler(new ClientDatagrams(service, limiter));
  }

  private static Problem notOpened(String protocol, String address, Throwable thrown) {
    String wrong = address + " cannot be opened for " + protocol + ": " + thrown.getMessage();
    return new Problem("netty", wrong, "a free port of an address of this host", "listen=IP:0", thrown);
  }

  /**
   * How far a server trusts who connects to it.
   *
   * @param identifyTimeoutNs a stranger must say a valid request within this time
   * @param unidentified at one time; one more closes the oldest
   * @param connections at one time, of all kinds
   * @param unreadNs who has not read its replies for so long, with full buffers, is closed
   */
  public record Limits(long identifyTimeoutNs, int unidentified, int connections, long unreadNs) {
    /** Those of the servers in Rust. */
    public static final Limits USUAL = new Limits(5_000_000_000L, 256, 1024, 10_000_000_000L);
  }

  /** The UDP socket of the server: a datagram that is no request of this run is dropped and counted. */
  static final class ClientDatagrams extends SimpleChannelInboundHandler<DatagramPacket> {
    private final Service service;
    private final ConnectionLimiter limiter;

    ClientDatagrams(Service service, ConnectionLimiter limiter) {
      this.service = service;
      this.limiter = limiter;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, DatagramPacket packet) {
      ByteBuf request = packet.content();
      ByteBuf reply = context.alloc().ioBuffer();
      boolean appended = false;
      ReplyRoute route = new ReplyRoute(context.channel(), packet.sender());
      try {
        if (request.isReadable() && service.codec().requestBytes(request) == request.readableBytes()) {
          appended = service.answer(request, route, reply);
        } else {
          limiter.refuse();
        }
      } catch (ProtocolException thrown) {
        limiter.refuse();
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
}
