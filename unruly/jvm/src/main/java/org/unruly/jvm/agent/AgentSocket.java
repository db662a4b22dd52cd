package org.unruly.jvm.agent;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.DecoderException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.List;
import org.unruly.jvm.Problem;
import org.unruly.jvm.Shutdown;
import org.unruly.jvm.agent.PeerConnection.Peer;
import org.unruly.jvm.agent.RequestQueue.Request;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

/** The socket on which the agent sends its requests, one connection per peer. */
public final class AgentSocket implements AutoCloseable {
  /** Limits for outcomes that the agent has not read, bytes. The high mark holds about 170,000 of them, several seconds. */
  private static final WriteBufferWaterMark UNREAD = new WriteBufferWaterMark(8 << 20, 16 << 20);

  private static final long TIMEOUT_MS = 1000;

  private final Path path;
  private final ChannelGroup channels;

  private AgentSocket(Path path, ChannelGroup channels) {
    this.path = path;
    this.channels = channels;
  }

  /** Opens the socket. Closing it, or the end of the process, deletes the file. */
  public static AgentSocket open(AgentConfig config, EventLoopGroup loop) {
    if (Files.exists(config.asking(), LinkOption.NOFOLLOW_LINKS)) {
      // Netty would delete any file at this path
      throw notOpened(config.asking(), "something is there", null);
    }
    ChannelGroup channels = new DefaultChannelGroup(loop.next(), true);
    ServerBootstrap bootstrap =
        new ServerBootstrap()
            .group(loop)
            .channel(EpollServerDomainSocketChannel.class)
            .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, UNREAD)
            .childHandler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel connection) {
                    channels.add(connection);
                    connection.pipeline().addLast(new AgentConnection(config));
                  }
                });
    ChannelFuture bound = bootstrap.bind(new DomainSocketAddress(config.asking().toFile())).awaitUninterruptibly();
    if (!bound.isSuccess()) {
      throw notOpened(config.asking(), bound.cause().getMessage(), bound.cause());
    }
    AgentSocket asking = new AgentSocket(config.asking(), channels);
    Shutdown.atEnd(asking::delete);
    channels.add(bound.channel());
    return asking;
  }

  @Override
  public void close() {
    channels.close().awaitUninterruptibly(TIMEOUT_MS);
    delete();
  }

  private static Problem notOpened(Path path, String why, Throwable thrown) {
    String wrong = path + " cannot be listened at: " + why;
    return new Problem("asking", wrong, "a path of at most 107 bytes where nothing is", "a folder of your own", thrown);
  }

  private void delete() {
    try {
      // an agent that was killed cannot delete the folder that it made for this socket
      if (Files.deleteIfExists(path) && path.getParent() != null) {
        Files.delete(path.getParent());
      }
    } catch (IOException thrown) {
      // the folder holds other files
    }
  }

  /** A connection of the agent. Its first record names the peer; each later record schedules a request. */
  static final class AgentConnection extends ByteToMessageDecoder {
    private final AgentConfig config;
    private PeerConnection peer;

    AgentConnection(AgentConfig config) {
      this.config = config;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object bytes) throws Exception {
      super.channelRead(context, bytes);
      // all records of this read are queued: send the requests whose scheduled time has passed
      if (peer != null) {
        peer.sendDue();
      }
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf bytes, List<Object> none) {
      if (bytes.readableBytes() < ForeignRecord.BYTES) {
        return;
      }
      try {
        take(context, ForeignRecord.read(bytes.nioBuffer(bytes.readerIndex(), ForeignRecord.BYTES)));
        bytes.skipBytes(ForeignRecord.BYTES);
      } catch (Problem thrown) {
        // Netty would otherwise decode these bytes again when the connection closes
        bytes.skipBytes(bytes.readableBytes());
        throw thrown;
      }
    }

    private void take(ChannelHandlerContext context, ForeignRecord record) {
      long[] fields = record.fields();
      if (record.kind() == Kind.ROUTE && peer == null) {
        OutcomeReporter outcomes = new OutcomeReporter(context.channel());
        peer = new PeerConnection(Peer.of(fields), config, outcomes, context.channel().eventLoop());
        peer.connect();
      } else if (record.kind() == Kind.ROUTE) {
        String wrong = "a connection has a second route";
        throw new Problem("agent", wrong, "one connection for each peer", "see unruly/schema/foreign.md");
      } else if (record.kind() == Kind.ASK && peer == null) {
        throw new Problem("agent", "an ask came before a route", "the route first", "send kind 32, then kind 33");
      } else if (record.kind() == Kind.ASK) {
        peer.add(new Request(fields[0], fields[1], (int) fields[2] & 0xFF));
      }
    }

    /** Closes the connection if the agent does not read the outcomes, because they would fill the memory. */
    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
      if (!context.channel().isWritable()) {
        System.err.println("agent: the answers are not read; wanted an agent that reads them; hint: see what it told");
        context.close();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) throws Exception {
      super.channelInactive(context);
      if (peer != null) {
        peer.close();
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
      if (thrown instanceof DecoderException && thrown.getCause() != null) {
        System.err.println(thrown.getCause().getMessage());
      }
      context.close();
    }
  }
}
