package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.unruly.board.Interaction;
import org.unruly.board.Pages;
import org.unruly.board.Schema;
import org.unruly.board.Wanted;

/** Shows stories and comments: the bulletin board of {@link org.unruly.board}, with members. */
final class Board implements Application {
  private static final int RATING_MOST = 5;
  private static final int TITLE_MOST = 100;
  private static final int ANY = 1 << 20;
  static final Members MEMBERS =
      new Members("posters", "", "posts", "deed varchar(20), place int, outcome varchar(12)");

  @Override
  public String name() {
    return "board";
  }

  @Override
  public List<String> tables() {
    List<String> all = new ArrayList<>(Schema.tables());
    all.addAll(
        MEMBERS.tables(
            "create table if not exists threads(story int primary key, comments int not null)",
            "create index if not exists moderations_comment on moderations(comment_id)"));
    return List.copyOf(all);
  }

  @Override
  public void fill(Connection database) throws SQLException {
    Schema.addRows(database);
    if (Sql.number(database, "select count(*) from threads") == 0) {
      Sql.change(
          database,
          "insert into threads(story, comments)"
              + " select story, count(*) from comments group by story");
    }
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        read("day", 20, Interaction.STORIES_OF_THE_DAY),
        read("story", 30, Interaction.VIEW_STORY),
        read("comment", 10, Interaction.VIEW_COMMENT),
        read("category", 12, Interaction.BROWSE_STORIES_BY_CATEGORY),
        read("older", 5, Interaction.OLDER_STORIES),
        new Operation("store-comment", 12, true, Arguments.below(ANY, 1), Board::storeComment),
        new Operation("rate-comment", 8, true, Arguments.below(ANY, 1), Board::rateComment),
        new Operation("store-story", 3, true, Arguments.below(ANY, 1), Board::storeStory));
  }

  private static Operation read(String name, int weight, Interaction interaction) {
    Action action =
        (database, member, number, arguments) -> page(interaction, wanted(arguments), database);
    // most readers want one of the first pages
    return new Operation(name, weight, false, Arguments.below(ANY, 3), action);
  }

  private static Wanted wanted(long[] arguments) {
    return Wanted.of(name -> Long.toString(arguments[name.equals("id") ? 0 : 1]));
  }

  /**
   * Makes a page; returns its length and the first title of its list. The whole page would be far
   * longer than the replies of the other applications.
   */
  private static String page(Interaction interaction, Wanted wanted, Connection database)
      throws SQLException {
    String html = Pages.of(interaction, wanted, database).render(1);
    String open = "<li>";
    int start = html.indexOf(open);
    String item = start < 0 ? "" : html.substring(start + open.length(), html.indexOf("</li>"));
    String title = item.substring(0, Math.min(item.length(), TITLE_MOST));
    return html.length() + " " + title;
  }

  private static String storeComment(
      Connection database, long member, long number, long[] arguments) throws SQLException {
    Wanted wanted = wanted(arguments);
    Sql.change(
        database, "update threads set comments = comments + 1 where story = ?", wanted.story());
    String page = page(Interaction.STORE_COMMENT, wanted, database);
    MEMBERS.record(database, member, number, "store-comment", wanted.story(), "stored");
    return page;
  }

  private static String rateComment(
      Connection database, long member, long number, long[] arguments) throws SQLException {
    Wanted wanted = wanted(arguments);
    long rating =
        Sql.number(
            database, "select rating from comments where id = ? for update", wanted.comment());
    boolean isRated = rating < RATING_MOST;
    String reply =
        isRated
            ? page(Interaction.STORE_MODERATOR_LOG, wanted, database)
            : "the rating is " + rating + " already";
    String outcome = isRated ? "rated" : "refused";
    MEMBERS.record(database, member, number, "rate-comment", wanted.comment(), outcome);
    return reply;
  }

  private static String storeStory(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    Wanted wanted = wanted(arguments);
    String page = page(Interaction.STORE_STORY, wanted, database);
    MEMBERS.record(database, member, number, "store-story", wanted.category(), "stored");
    return page;
  }

  @Override
  public Tally tally(Connection database, long member) throws SQLException {
    return MEMBERS.tally(database, member);
  }

  @Override
  public Optional<String> contradiction(Connection database) throws SQLException {
    return MEMBERS.contradiction(
        database,
        new Check(
            "threads: story %s counts %s comments, but has %s",
            "select t.story, t.comments, count(c.id) from threads t left join comments c"
                + " on c.story = t.story group by t.story, t.comments"
                + " having t.comments <> count(c.id)"),
        new Check(
            "comments: %s has the rating %s, but was rated %s times",
            "select c.id, c.rating, count(m.id) from comments c left join moderations m"
                + " on m.comment_id = c.id group by c.id, c.rating"
                + " having c.rating <> count(m.id)"),
        new Check(
            "posts: %s of members rated a comment, but %s ratings are stored",
            "select rated, stored from (select count(*) as rated from posts"
                + " where outcome = 'rated') p"
                + " cross join (select count(*) as stored from moderations) m"
                + " where rated <> stored"));
  }
}
