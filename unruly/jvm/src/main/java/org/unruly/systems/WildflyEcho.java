package org.unruly.systems;

import java.util.Properties;
import java.util.concurrent.TimeUnit;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import org.jboss.ejb.client.EJBClient;
import org.jboss.ejb.client.RequestSendFailedException;
import org.unruly.jvm.Options;
import org.unruly.jvm.Problem;

/**
 * Enterprise JavaBeans: a stateless bean in the application server WildFly, called by JBoss
 * Remoting over HTTP upgrade.
 *
 * <p>Each worker has a proxy of its own. WildFly's client sends the calls of all proxies over one
 * connection.
 */
final class WildflyEcho implements EchoSystem {
  /** The name of the bean. */
  static final String BEAN = "EchoBean";

  /** Timeout of the first call, ms: the client loads 4,000 classes for it, 2 s of CPU time. */
  private static final int FIRST_MS = 15_000;

  /** The path of the bean: no application, the module of {@code echo.jar}, the bean. */
  private static final String NAME =
      "ejb:/echo/" + BEAN + "!org.unruly.systems.WildflyEchoRemote";

  @Override
  public void serve(Options options) {
    String found = "the server of wildfly is WildFly";
    throw new Problem("systems", found, "call wildfly", "see unruly/systems/wildfly.toml");
  }

  @Override
  public Client client(Options options, long timeoutNs) throws Exception {
    Properties settings = new Properties();
    settings.put(
        Context.INITIAL_CONTEXT_FACTORY, "org.wildfly.naming.client.WildFlyInitialContextFactory");
    int port = (int) options.number("port", 1, 65_535);
    settings.put(Context.PROVIDER_URL, "remote+http://" + options.text("host") + ":" + port);
    int timeoutMs = EchoSystem.millis(timeoutNs);
    // a call that times out while classes are loaded breaks off the attempt to connect
    new WildflyConnection(settings, Math.max(FIRST_MS, timeoutMs)).call(new byte[0]);
    return () -> new WildflyConnection(settings, timeoutMs);
  }

  private static final class WildflyConnection extends Connection {
    private final WildflyEchoRemote proxy;

    private WildflyConnection(Properties settings, int timeoutMs) throws NamingException {
      proxy = (WildflyEchoRemote) new InitialContext(settings).lookup(NAME);
      EJBClient.setInvocationTimeout(proxy, timeoutMs, TimeUnit.MILLISECONDS);
    }

    @Override
    void call(byte[] payload) throws Failure {
      try {
        byte[] reply = proxy.echo(payload);
        keep(reply, 0, reply.length);
      } catch (RequestSendFailedException thrown) {
        // the client found no server that it could send to
        throw new Failure(Failure.Kind.DISCONNECTED, thrown);
      }
    }
  }
}
