package org.unruly.board;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.util.HashMap;
import java.util.Map;
import javax.sql.DataSource;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/**
 * A bulletin board on Tomcat: stories, comments and votes, in a database that is reached by JDBC.
 *
 * <p>Its pages have the names and the weights of RUBBoS. Options are {@code key=value}: {@code host}, {@code port},
 * {@code url}, {@code user}, {@code password}, {@code pool} ({@code global} or {@code local}), {@code pool-size},
 * {@code threads}, {@code rounds}, and {@code seed} ({@code yes} to fill the database first).
 */
public final class Main {
  private static final int ACCEPTED = 1_000;

  private Main() {}

  /** Serves until the process ends. */
  public static void main(String[] words) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (String word : words) {
      String[] parts = word.split("=", 2);
      options.put(parts[0], parts.length > 1 ? parts[1] : "");
    }
    Map<Interaction, DataSource> pools =
        Pools.of(
            options.get("url"), options.get("user"), options.get("password"),
            options.get("pool").equals("global"), Integer.parseInt(options.get("pool-size")));
    if ("yes".equals(options.get("seed"))) {
      try (Connection connection = pools.get(Interaction.VIEW_STORY).getConnection()) {
        Schema.fill(connection);
      }
    }
    Tomcat tomcat = start(options, pools);
    System.out.println("the board is open");
    tomcat.getServer().await();
  }

  /** Starts Tomcat with a servlet for each interaction. */
  static Tomcat start(Map<String, String> options, Map<Interaction, DataSource> pools) throws Exception {
    Tomcat tomcat = new Tomcat();
    Path folder = Files.createTempDirectory("board");
    folder.toFile().deleteOnExit();
    tomcat.setBaseDir(folder.toString());
    Connector connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
    connector.setPort(Integer.parseInt(options.get("port")));
    connector.setProperty("address", options.get("host"));
    connector.setProperty("maxThreads", options.get("threads"));
    connector.setProperty("minSpareThreads", options.get("threads"));
    connector.setProperty("maxKeepAliveRequests", "-1");
    connector.setProperty("acceptCount", String.valueOf(ACCEPTED));
    connector.setProperty("maxConnections", String.valueOf(ACCEPTED));
    tomcat.setConnector(connector);
    Context context = tomcat.addContext("", null);
    int rounds = Integer.parseInt(options.get("rounds"));
    for (Interaction interaction : Interaction.values()) {
      Tomcat.addServlet(context, interaction.name(), new Board(interaction, pools.get(interaction), rounds));
      context.addServletMappingDecoded(interaction.path(), interaction.name());
    }
    tomcat.start();
    return tomcat;
  }
}
