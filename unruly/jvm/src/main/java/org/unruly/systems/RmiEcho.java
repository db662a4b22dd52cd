package org.unruly.systems;

import java.io.IOException;
import java.io.ObjectInputFilter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.rmi.Remote;
import java.rmi.RemoteException;
import java.rmi.registry.LocateRegistry;
import java.rmi.registry.Registry;
import java.rmi.server.RMIServerSocketFactory;
import java.rmi.server.UnicastRemoteObject;
import java.util.Set;
import org.unruly.jvm.Options;

/**
 * RMI of the JDK: the registry and the object share one port of one address.
 *
 * <p>Each worker has a stub of its own; RMI itself keeps a connection for each open call.
 */
final class RmiEcho implements Platform {
  private static final String NAME = "echo";

  /** The remote object, which the registry holds by its stub only: it would be collected. */
  private static Echo exported;

  /** The remote interface. */
  interface Echo extends Remote {
    /** Returns the handler's reply to its argument. */
    byte[] echo(byte[] bytes) throws RemoteException;
  }

  @Override
  public Set<String> keys() {
    return Set.of("host", "port", "announce");
  }

  @Override
  public void serve(Options options, Handler handler) throws Exception {
    InetAddress host = InetAddress.getByName(options.text("host"));
    int port = EchoSystem.port(options);
    String announced = options.has("announce") ? options.text("announce") : host.getHostAddress();
    // this is the address in stubs; without the factory below RMI would listen on all addresses
    System.setProperty("java.rmi.server.hostname", announced);
    OneAddress sockets = new OneAddress(host);
    Registry registry = LocateRegistry.createRegistry(port, null, sockets);
    // a call has an array of bytes and no other object
    ObjectInputFilter filter =
        ObjectInputFilter.Config.createFilter("maxarray=" + MAX_BYTES + ";maxdepth=2;!*");
    exported = handler::handle;
    registry.bind(NAME, UnicastRemoteObject.exportObject(exported, port, null, sockets, filter));
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    String host = options.text("host");
    int port = EchoSystem.port(options);
    String timeoutMs = Integer.toString(EchoSystem.millis(timeoutNs));
    // RMI reads these once, when its first class is loaded
    System.setProperty("sun.rmi.transport.tcp.responseTimeout", timeoutMs);
    System.setProperty("sun.rmi.transport.tcp.handshakeTimeout", timeoutMs);
    return () -> new RmiConnection((Echo) LocateRegistry.getRegistry(host, port).lookup(NAME));
  }

  /** Binds server sockets to one address; equal factories share a port. */
  private record OneAddress(InetAddress host) implements RMIServerSocketFactory {
    @Override
    public ServerSocket createServerSocket(int port) throws IOException {
      return new ServerSocket(port, TcpEcho.BACKLOG, host);
    }
  }

  private static final class RmiConnection extends Connection {
    private final Echo stub;

    private RmiConnection(Echo stub) {
      this.stub = stub;
    }

    @Override
    void call(byte[] payload) throws RemoteException {
      byte[] reply = stub.echo(payload);
      keep(reply, 0, reply.length);
    }
  }
}
