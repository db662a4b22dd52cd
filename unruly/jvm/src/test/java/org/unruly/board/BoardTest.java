package org.unruly.board;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Connection;
import java.util.Map;
import javax.sql.DataSource;
import org.apache.catalina.startup.Tomcat;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The board on a real Tomcat, with a database in memory in the place of MariaDB. */
class BoardTest {
  private static final String URL = "jdbc:h2:mem:board;MODE=MariaDB;DB_CLOSE_DELAY=-1";
  private static Tomcat tomcat;
  private static Map<Interaction, DataSource> pools;

  @BeforeAll
  static void open() throws Exception {
    pools = Pools.of(URL, "sa", "", true, 4);
    try (Connection connection = pools.get(Interaction.VIEW_STORY).getConnection()) {
      Schema.fill(connection);
      // a second time nothing is added
      Schema.fill(connection);
    }
    tomcat = Main.start(Map.of("host", "127.0.0.1", "port", "0", "threads", "4", "rounds", "2"), pools);
  }

  @AfterAll
  static void close() throws Exception {
    tomcat.stop();
    tomcat.destroy();
  }

  private static HttpResponse<String> get(String path) throws Exception {
    int port = tomcat.getConnector().getLocalPort();
    URI place = URI.create("http://127.0.0.1:" + port + path);
    return HttpClient.newHttpClient().send(HttpRequest.newBuilder(place).build(), HttpResponse.BodyHandlers.ofString());
  }

  @Test
  void everyInteractionHasAPage() throws Exception {
    assertEquals(24, Interaction.values().length);
    for (Interaction interaction : Interaction.values()) {
      HttpResponse<String> page = get(interaction.path() + "?id=123&page=2");
      assertEquals(200, page.statusCode(), interaction.path() + ": " + page.body());
      assertTrue(page.body().endsWith("</body></html>\n"), interaction.path());
    }
    assertEquals(404, get("/Nowhere").statusCode());
  }

  @Test
  void aStoryIsShownWithItsComments() throws Exception {
    String page = get("/ViewStory?id=6").body();
    assertTrue(page.contains("story 7"), page);
    assertEquals(1 + Schema.COMMENTS_OF_A_STORY, page.split("<li>").length - 1);
  }

  @Test
  void aNumberThatIsNoneIsTheFirst() throws Exception {
    assertEquals(get("/ViewComment?id=0").body(), get("/ViewComment?id=none").body());
    assertEquals(200, get("/ViewStory?id=-9223372036854775808").statusCode());
  }

  @Test
  void aCommentIsStored() throws Exception {
    int before = get("/ViewStory?id=1998").body().split("<li>").length;
    get("/StoreComment?id=1998");
    assertEquals(before + 1, get("/ViewStory?id=1998").body().split("<li>").length);
  }

  @Test
  void poolsAreSharedOnlyWhenTheyAreGlobal() {
    assertSame(pools.get(Interaction.VIEW_STORY), pools.get(Interaction.STORE_STORY));
    Map<Interaction, DataSource> local = Pools.of(URL, "sa", "", false, 2);
    assertNotSame(local.get(Interaction.VIEW_STORY), local.get(Interaction.STORE_STORY));
    assertEquals(20, local.size());
  }
}
