package org.unruly.systems;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Properties;
import java.util.Set;
import org.omg.CORBA.BAD_OPERATION;
import org.omg.CORBA.BAD_PARAM;
import org.omg.CORBA.COMM_FAILURE;
import org.omg.CORBA.OBJECT_NOT_EXIST;
import org.omg.CORBA.ORB;
import org.omg.CORBA.SystemException;
import org.omg.CORBA.TIMEOUT;
import org.omg.CORBA.TRANSIENT;
import org.omg.CORBA.portable.ApplicationException;
import org.omg.CORBA.portable.InputStream;
import org.omg.CORBA.portable.InvokeHandler;
import org.omg.CORBA.portable.ObjectImpl;
import org.omg.CORBA.portable.OutputStream;
import org.omg.CORBA.portable.RemarshalException;
import org.omg.CORBA.portable.ResponseHandler;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;
import org.omg.PortableServer.Servant;
import org.unruly.jvm.Options;

/**
 * CORBA by JacORB. The stub and the skeleton are written by hand, as an IDL compiler would write
 * them for {@code octets call(octets)}; the server leaves its reference in a file.
 *
 * <p>Each worker has a stub of its own. JacORB sends the calls of all stubs over one connection.
 */
final class JacorbEcho implements Platform {
  private static final String[] TYPES = {"IDL:unruly/Echo:1.0"};
  private static final String OPERATION = "call";

  @Override
  public Set<String> keys() {
    return Set.of("host", "port", "announce", "ior");
  }

  @Override
  public void serve(Options options, Handler handler) throws Exception {
    Properties settings = settings();
    settings.put("OAIAddr", options.text("host"));
    settings.put("OAPort", Integer.toString(EchoSystem.port(options)));
    if (options.has("announce")) {
      settings.put("jacorb.ior_proxy_host", options.text("announce"));
    }
    // as many as a client may have open requests; more of them wait
    settings.put("jacorb.poa.thread_pool_max", "256");
    settings.put("jacorb.poa.queue_max", "1000000");
    ORB orb = ORB.init(new String[0], settings);
    POA adapter = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
    adapter.the_POAManager().activate();
    String reference = orb.object_to_string(adapter.servant_to_reference(new Echo(handler)));
    // a client reads the whole reference or none
    Path file = Path.of(options.text("ior"));
    Path written = Path.of(options.text("ior") + ".new");
    Files.writeString(written, reference);
    Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    Properties settings = settings();
    String timeoutMs = Integer.toString(EchoSystem.millis(timeoutNs));
    settings.put("jacorb.connection.client.connect_timeout", timeoutMs);
    settings.put("jacorb.connection.client.pending_reply_timeout", timeoutMs);
    // a request makes one attempt
    settings.put("jacorb.retries", "0");
    settings.put("jacorb.maxBuiltinRetries", "0");
    ORB orb = ORB.init(new String[0], settings);
    Path file = Path.of(options.text("ior"));
    return () -> new JacorbConnection(orb, file);
  }

  private static Properties settings() {
    Properties settings = new Properties();
    settings.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
    settings.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
    settings.put("jacorb.implname", "echo");
    return settings;
  }

  /** The skeleton, which calls the handler. */
  private static final class Echo extends Servant implements InvokeHandler {
    private final Handler handler;

    private Echo(Handler handler) {
      this.handler = handler;
    }

    @Override
    public String[] _all_interfaces(POA adapter, byte[] id) {
      return TYPES.clone();
    }

    @Override
    public OutputStream _invoke(String operation, InputStream in, ResponseHandler replies) {
      if (!operation.equals(OPERATION)) {
        throw new BAD_OPERATION(operation);
      }
      byte[] bytes = new byte[length(in)];
      in.read_octet_array(bytes, 0, bytes.length);
      byte[] reply = handler.handle(bytes);
      OutputStream out = replies.createReply();
      out.write_ulong(reply.length);
      out.write_octet_array(reply, 0, reply.length);
      return out;
    }
  }

  private static int length(InputStream in) {
    int length = in.read_ulong();
    if (length < 0 || length > MAX_BYTES) {
      throw new BAD_PARAM(Integer.toUnsignedString(length) + " bytes");
    }
    return length;
  }

  private static final class Stub extends ObjectImpl {
    @Override
    public String[] _ids() {
      return TYPES.clone();
    }
  }

  private static final class JacorbConnection extends Connection {
    private final Stub stub = new Stub();
    private byte[] echo = {};

    /** Reads the reference each time: a server that was started again has another. */
    private JacorbConnection(ORB orb, Path file) throws IOException, Failure {
      try {
        ObjectImpl found = (ObjectImpl) orb.string_to_object(Files.readString(file).strip());
        stub._set_delegate(found._get_delegate());
      } catch (SystemException thrown) {
        throw failure(thrown);
      }
    }

    @Override
    void call(byte[] payload) throws Failure {
      InputStream in = null;
      try {
        OutputStream out = stub._request(OPERATION, true);
        out.write_ulong(payload.length);
        out.write_octet_array(payload, 0, payload.length);
        in = stub._invoke(out);
        int length = length(in);
        if (echo.length < length) {
          echo = new byte[length];
        }
        in.read_octet_array(echo, 0, length);
        keep(echo, 0, length);
      } catch (SystemException thrown) {
        throw failure(thrown);
      } catch (ApplicationException thrown) {
        throw new Failure(Failure.Kind.STORE, thrown);
      } catch (RemarshalException thrown) {
        // the ORB asks to send the call again, elsewhere
        throw new Failure(Failure.Kind.DISCONNECTED, thrown);
      } finally {
        stub._releaseReply(in);
      }
    }

    private static Failure failure(SystemException thrown) {
      if (thrown instanceof TIMEOUT) {
        return new Failure(Failure.Kind.UNAVAILABLE, thrown);
      }
      boolean gone =
          thrown instanceof COMM_FAILURE
              || thrown instanceof TRANSIENT
              || thrown instanceof OBJECT_NOT_EXIST;
      return new Failure(gone ? Failure.Kind.DISCONNECTED : Failure.Kind.STORE, thrown);
    }
  }
}
