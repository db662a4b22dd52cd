package org.unruly.jvm.agent;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import java.net.InetSocketAddress;
import org.unruly.jvm.Problem;

/** The server side of the group RPC: answers requests of its own run over TCP and UDP, survives everything else. */
public final class Server implements AutoCloseable {
  /** Asked for; the kernel gives what it allows. TCP's buffers grow by themselves, and further than that. */
  static final int DATAGRAM_BUFFER_BYTES = 16 << 20;

  private static final int BACKLOG = 1024;

  /** Replies that a peer has not read; above it is not read from. */
  private static final WriteBufferWaterMark UNREAD = new WriteBufferWaterMark(512 << 10, 1 << 20);

  /** Of a port that the kernel chose for TCP, UDP's may be taken. */
  private static final int ATTEMPTS = 10;

  private static final long PATIENCE_MS = 1000;

  private final AgentTerms terms;
  private final Limits limits;
  private final EventLoopGroup loops;
  private final Door door;
  private final Service service;
  private final ChannelGroup channels;
  private int port;

  private Server(AgentTerms terms, Limits limits, EventLoopGroup loops) {
    this.terms = terms;
    this.limits = limits;
    this.loops = loops;
    door = new Door(limits);
    service = new Service(terms);
    channels = new DefaultChannelGroup(loops.next(), true);
  }

  /** Binds both ports, and serves from then on. */
  public static Server open(AgentTerms terms, Limits limits, EventLoopGroup loops) {
    Server server = new Server(terms, limits, loops);
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
    return door.refused();
  }

  @Override
  public void close() {
    service.close();
    channels.close().awaitUninterruptibly(PATIENCE_MS);
  }

  private void bind() {
    for (int attempt = 1; ; attempt++) {
      ChannelFuture stream = streams().bind(terms.listen()).awaitUninterruptibly();
      if (!stream.isSuccess()) {
        throw notOpened("TCP", terms.listenText(), stream.cause());
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
      if (terms.listen().getPort() != 0 || attempt == ATTEMPTS) {
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
                connection.pipeline().addLast(new RequestStream(service, door, limits));
              }
            });
  }

  private Bootstrap datagrams() {
    // one byte more than the longest request, so that none looks whole that is not
    int room = terms.codec().requestBytes(Head.BODY) + 1;
    return new Bootstrap()
        .group(loops)
        .channel(EpollDatagramChannel.class)
        .option(ChannelOption.SO_RCVBUF, DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.SO_SNDBUF, DATAGRAM_BUFFER_BYTES)
        .option(ChannelOption.RCVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(Math.min(room, 1 << 16)))
        .handler(new RequestDatagrams(service, door));
  }

  private static Problem notOpened(String protocol, String address, Throwable thrown) {
    String wrong = address + " cannot be opened for " + protocol + ": " + thrown.getMessage();
    return new Problem("netty", wrong, "a free port of an address of this host", "listen=IP:0", thrown);
  }
}
