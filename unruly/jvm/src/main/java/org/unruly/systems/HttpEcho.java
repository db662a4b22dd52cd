package org.unruly.systems;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.modeler.Registry;
import org.unruly.jvm.Options;

/**
 * HTTP/1.1 with connections that are kept: a servlet on Tomcat, called by the client of the JDK.
 *
 * <p>Workers share one client, whose pool has a connection for each open request.
 */
final class HttpEcho implements Platform {
  /** Threads of the server: as many as a client may have open requests. */
  private static final String THREADS = "256";

  private static final String CONNECTIONS = "1024";
  private static final int OK = 200;

  @Override
  public void serve(Options options, Handler handler) throws Exception {
    // its management beans would take most of the start
    Registry.disableRegistry();
    Tomcat tomcat = new Tomcat();
    Path folder = Files.createTempDirectory("echo");
    folder.toFile().deleteOnExit();
    tomcat.setBaseDir(folder.toString());
    Connector connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
    connector.setPort(EchoSystem.port(options));
    connector.setProperty("address", options.text("host"));
    connector.setProperty("maxThreads", THREADS);
    connector.setProperty("maxConnections", CONNECTIONS);
    connector.setProperty("acceptCount", CONNECTIONS);
    // the client alone decides when a connection ends
    connector.setProperty("maxKeepAliveRequests", "-1");
    connector.setProperty("keepAliveTimeout", "-1");
    tomcat.setConnector(connector);
    Context context = tomcat.addContext("", null);
    Tomcat.addServlet(context, "echo", new Echo(handler));
    context.addServletMappingDecoded("/echo", "echo");
    tomcat.start();
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    int port = EchoSystem.port(options);
    URI place = URI.create("http://" + options.text("host") + ":" + port + "/echo");
    Duration timeout = Duration.ofNanos(timeoutNs);
    HttpClient client =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(timeout)
            .build();
    return () -> new HttpConnection(client, place, timeout);
  }

  private static final class Echo extends HttpServlet {
    private static final long serialVersionUID = 1L;

    private final transient Handler handler;

    private Echo(Handler handler) {
      this.handler = handler;
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      long length = request.getContentLengthLong();
      if (length < 0 || length > MAX_BYTES) {
        response.sendError(HttpServletResponse.SC_REQUEST_ENTITY_TOO_LARGE);
        return;
      }
      byte[] body = request.getInputStream().readNBytes((int) length);
      byte[] reply = handler.handle(body);
      response.setContentLength(reply.length);
      response.getOutputStream().write(reply);
    }
  }

  private static final class HttpConnection extends Connection {
    private final HttpClient client;
    private final URI place;
    private final Duration timeout;

    /** The request of {@link #sent}, which is the same as long as the array is. */
    private HttpRequest request;

    private byte[] sent;

    private HttpConnection(HttpClient client, URI place, Duration timeout) {
      this.client = client;
      this.place = place;
      this.timeout = timeout;
    }

    @Override
    void call(byte[] payload) throws IOException, InterruptedException, Failure {
      if (sent != payload) {
        HttpRequest.BodyPublisher body = HttpRequest.BodyPublishers.ofByteArray(payload);
        request = HttpRequest.newBuilder(place).timeout(timeout).POST(body).build();
        sent = payload;
      }
      HttpResponse<byte[]> reply = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
      if (reply.statusCode() != OK) {
        throw new Failure(Failure.Kind.STORE, "the server answered " + reply.statusCode());
      }
      keep(reply.body(), 0, reply.body().length);
    }
  }
}
