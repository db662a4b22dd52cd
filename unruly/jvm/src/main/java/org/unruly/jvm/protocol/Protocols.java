package org.unruly.jvm.protocol;

import java.io.Closeable;
import java.io.IOException;
import java.util.List;
import org.unruly.jvm.Problem;
import org.unruly.jvm.protocol.UdpEndpoint.UdpReceiver;
import org.unruly.jvm.protocol.UdpEndpoint.UdpSender;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.StreamConfig;

/** The protocols by name. */
public final class Protocols {
  /** All names. */
  public static final List<String> NAMES =
      List.of("jvm-tcp", "jvm-nio", "jvm-udp", "jgroups-udp", "jgroups-tcp", "aeron");

  private Protocols() {}

  /** Opens the writer's end. */
  public static Sender sender(String protocol, StreamConfig config) {
    try {
      return switch (protocol) {
        case "jvm-tcp" -> new TcpSender(config);
        case "jvm-nio" -> new NioSender(config);
        case "jvm-udp" -> new UdpSender(config);
        case "jgroups-udp", "jgroups-tcp" -> new JGroupsSender(protocol, config);
        case "aeron" -> new AeronSender(config);
        default -> throw unknown(protocol);
      };
    } catch (IOException thrown) {
      throw notOpened(protocol, config, thrown);
    } catch (LinkageError thrown) {
      throw notLinked(protocol, thrown);
    }
  }

  /** Opens the reader's end. */
  public static Receiver receiver(String protocol, StreamConfig config) {
    try {
      return switch (protocol) {
        case "jvm-tcp" -> new TcpReceiver(config);
        case "jvm-nio" -> new NioReceiver(config);
        case "jvm-udp" -> new UdpReceiver(config);
        case "jgroups-udp", "jgroups-tcp" -> new JGroupsReceiver(protocol, config);
        case "aeron" -> new AeronReceiver(config);
        default -> throw unknown(protocol);
      };
    } catch (IOException thrown) {
      throw notOpened(protocol, config, thrown);
    } catch (LinkageError thrown) {
      throw notLinked(protocol, thrown);
    }
  }

  private static Problem unknown(String protocol) {
    return new Problem("options", "protocol is " + protocol, "one of " + String.join(", ", NAMES), "protocol=jvm-tcp");
  }

  private static Problem notLinked(String protocol, LinkageError thrown) {
    Throwable cause = thrown.getCause() == null ? thrown : thrown.getCause();
    String hint = "the class path needs jvm/target/lib/*, and Java --add-opens java.base/sun.nio.ch=ALL-UNNAMED";
    return new Problem(protocol, "its library does not load: " + cause, "its jar, and the JDK open to it", hint, thrown);
  }

  private static Problem notOpened(String protocol, StreamConfig config, IOException thrown) {
    String wrong = config.listenText() + " cannot be opened: " + thrown.getMessage();
    return new Problem(protocol, wrong, "a free port of an address of this host", "listen=IP:0", thrown);
  }

  /** Closes resources that are not needed any more. */
  static final class Closing {
    private Closing() {}

    /** Closes it, and ignores errors, which harm no one then. */
    static void quietly(Closeable open) {
      try {
        if (open != null) {
          open.close();
        }
      } catch (IOException thrown) {
        // it is closed all the same
      }
    }
  }
}
