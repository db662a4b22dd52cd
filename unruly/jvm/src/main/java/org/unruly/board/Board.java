package org.unruly.board;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;

/** The servlet of one interaction. */
final class Board extends HttpServlet {
  private static final long serialVersionUID = 1;

  private final transient Interaction interaction;
  private final transient DataSource pool;
  private final int rounds;

  /**
   * @param pool where its connections come from
   * @param rounds how often a page is rendered
   */
  Board(Interaction interaction, DataSource pool, int rounds) {
    this.interaction = interaction;
    this.pool = pool;
    this.rounds = rounds;
  }

  @Override
  protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
    Wanted wanted = Wanted.of(request::getParameter);
    Page page;
    try {
      page = page(wanted);
    } catch (SQLException thrown) {
      // among others when the pool has had no connection for too long
      answer(response, HttpServletResponse.SC_SERVICE_UNAVAILABLE, thrown.getMessage());
      return;
    }
    answer(response, HttpServletResponse.SC_OK, page.render(rounds));
  }

  @Override
  protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
    doGet(request, response);
  }

  private Page page(Wanted wanted) throws SQLException {
    if (interaction.kind() == Interaction.Kind.STATIC) {
      return Pages.fixed(interaction);
    }
    try (Connection connection = pool.getConnection()) {
      return Pages.of(interaction, wanted, connection);
    }
  }

  private static void answer(HttpServletResponse response, int status, String text) throws IOException {
    byte[] body = text.getBytes(StandardCharsets.UTF_8);
    response.setStatus(status);
    response.setContentType("text/html; charset=utf-8");
    response.setContentLength(body.length);
    response.getOutputStream().write(body);
  }
}
