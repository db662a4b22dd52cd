package org.unruly.systems;

import java.util.Properties;
import javax.ejb.Remote;
import javax.ejb.Stateless;
import javax.ejb.embeddable.EJBContainer;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import org.apache.openejb.jee.StatelessBean;
import org.unruly.jvm.Options;

/**
 * Enterprise JavaBeans: a stateless bean in OpenEJB's embedded container, called from outside.
 *
 * <p>Each worker has a proxy of its own; the client of OpenEJB keeps a connection for each open
 * call.
 */
final class EjbEcho implements Platform {
  private static final String BEAN = "EchoBean";

  /** As many as a client may have open requests. */
  private static final String CALLS = "256";

  /** What the bean does. The container makes beans by their class alone, so it stands here. */
  private static Handler handler = request -> request;

  /** The container, which serves as long as it is reachable. */
  private static EJBContainer container;

  /** The remote interface. The container makes proxies of it, so it is public. */
  @Remote
  public interface Echo {
    /** Returns the handler's reply to its argument. */
    byte[] echo(byte[] bytes);
  }

  /** The bean. */
  @Stateless(name = BEAN)
  public static class EchoBean implements Echo {
    @Override
    public byte[] echo(byte[] bytes) {
      return handler.handle(bytes);
    }
  }

  @Override
  public void serve(Options options, Handler work) {
    handler = work;
    Properties settings = new Properties();
    settings.put("openejb.embedded.remotable", "true");
    settings.put("ejbd.bind", options.text("host"));
    settings.put("ejbd.port", Integer.toString(EchoSystem.port(options)));
    settings.put("ejbd.threads", CALLS);
    // a connection above this number would wait for a thread until another connection ends
    settings.put("ejbd.threadsCore", CALLS);
    // OpenEJB would open these two ports as well
    settings.put("ejbds.disabled", "true");
    settings.put("admin.disabled", "true");
    settings.put("openejb.jndiname.format", "{deploymentId}{interfaceType.annotationName}");
    // the ten beans of the default would make calls wait for each other
    settings.put("echoes", "new://Container?type=STATELESS");
    settings.put("echoes.MaxSize", CALLS);
    settings.put(EJBContainer.MODULES, new StatelessBean(BEAN, EchoBean.class.getName()));
    container = EJBContainer.createEJBContainer(settings);
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    String timeoutMs = Integer.toString(EchoSystem.millis(timeoutNs));
    System.setProperty("openejb.client.connection.pool.size", CALLS);
    System.setProperty("openejb.client.connection.pool.timeout", timeoutMs);
    System.setProperty("openejb.client.connection.socket.timeout", timeoutMs);
    System.setProperty("openejb.client.connection.socket.read", timeoutMs);
    Properties settings = new Properties();
    settings.put(
        Context.INITIAL_CONTEXT_FACTORY, "org.apache.openejb.client.RemoteInitialContextFactory");
    int port = EchoSystem.port(options);
    settings.put(Context.PROVIDER_URL, "ejbd://" + options.text("host") + ":" + port);
    return () -> new EjbConnection(settings);
  }

  private static final class EjbConnection extends Connection {
    private final Echo proxy;

    private EjbConnection(Properties settings) throws NamingException {
      // of two lookups at once on different servers, both could lead to one of them
      synchronized (EjbEcho.class) {
        proxy = (Echo) new InitialContext(settings).lookup(BEAN + "Remote");
      }
    }

    @Override
    void call(byte[] payload) {
      byte[] reply = proxy.echo(payload);
      keep(reply, 0, reply.length);
    }
  }
}
