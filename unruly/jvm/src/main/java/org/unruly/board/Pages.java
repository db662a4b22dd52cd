package org.unruly.board;

import java.sql.Connection;
import java.sql.SQLException;

/** The page of each interaction. */
public final class Pages {
  private static final int OF_A_PAGE = 15;

  private Pages() {}

  /** Makes a page that asks nothing of the database. */
  static Page fixed(Interaction interaction) {
    Page page = new Page(interaction.path().substring(1), null);
    return switch (interaction) {
      case REGISTER -> page.say("Choose a nickname and a password.");
      case BROWSE -> page.say("Browse the categories, or the older stories.");
      case SEARCH -> page.say("Search in stories, in comments, or for users.");
      case AUTHOR_LOGIN -> page.say("Authors log in here.");
      default -> throw new IllegalArgumentException(interaction.path());
    };
  }

  /** Makes a page that reads, or writes and reads. */
  public static Page of(Interaction interaction, Wanted wanted, Connection connection) throws SQLException {
    Page page = new Page(interaction.path().substring(1), connection);
    return interaction.kind() == Interaction.Kind.WRITES ? written(interaction, wanted, page) : read(interaction, wanted, page);
  }

  private static Page read(Interaction interaction, Wanted wanted, Page page) throws SQLException {
    int from = wanted.page() * OF_A_PAGE;
    return switch (interaction) {
      case STORIES_OF_THE_DAY ->
          page.list(
              "select s.id, s.title, s.body, u.nickname from stories s join users u on u.id = s.writer"
                  + " where s.accepted = 1 order by s.id desc limit 10");
      case BROWSE_CATEGORIES -> page.list("select id, name from categories order by id");
      case BROWSE_STORIES_BY_CATEGORY ->
          page.list("select name from categories where id = ?", wanted.category())
              .list(
                  "select id, title, writer from stories where category = ? order by id desc limit ? offset ?",
                  wanted.category(), OF_A_PAGE, from);
      case OLDER_STORIES ->
          page.list("select id, title, writer from stories where id <= ? order by id desc limit ?", Schema.STORIES - from, OF_A_PAGE);
      case VIEW_STORY ->
          story(page, wanted)
              .list("select id, subject, writer, rating from comments where story = ? order by id limit 50", wanted.story());
      case POST_COMMENT -> story(page, wanted).say("Write your comment.");
      case VIEW_COMMENT ->
          comment(page, wanted)
              .list("select c.id, c.subject, c.body, u.nickname from comments c join users u on u.id = c.writer where c.parent = ? order by c.id", wanted.comment());
      case MODERATE_COMMENT -> comment(page, wanted).say("Rate it from -1 to 1.");
      case SUBMIT_STORY -> page.list("select id, name from categories order by id").say("Write your story.");
      case SEARCH_IN_STORIES ->
          page.list("select id, title, writer from stories where title like ? order by id desc limit ? offset ?", wanted.word() + "%", OF_A_PAGE, from);
      case SEARCH_IN_COMMENTS ->
          page.list("select id, subject, writer from comments where subject like ? order by id desc limit ? offset ?", wanted.word() + "%", OF_A_PAGE, from);
      case SEARCH_IN_USERS -> page.list("select id, nickname, rating from users where nickname like ? order by id limit ?", "user" + wanted.user() + "%", OF_A_PAGE);
      case AUTHOR_TASKS -> page.list("select count(*) from stories where accepted = 0");
      case REVIEW_STORIES -> page.list("select id, title, writer from stories where accepted = 0 order by id limit ?", OF_A_PAGE);
      default -> throw new IllegalArgumentException(interaction.path());
    };
  }

  private static Page written(Interaction interaction, Wanted wanted, Page page) throws SQLException {
    return switch (interaction) {
      case REGISTER_USER -> page.change("insert into users(nickname, rating) values(?, 0)", "new" + wanted.user());
      case STORE_COMMENT ->
          page.change(
              "insert into comments(story, parent, writer, subject, body, rating) values(?, 0, ?, ?, ?, 0)",
              wanted.story(), wanted.user(), wanted.word() + " comment", "a new comment ".repeat(10));
      case STORE_MODERATOR_LOG ->
          page.change("insert into moderations(comment_id, rating) values(?, 1)", wanted.comment())
              .change("update comments set rating = rating + 1 where id = ?", wanted.comment());
      case STORE_STORY ->
          page.change(
              "insert into stories(title, body, writer, category, accepted) values(?, ?, ?, ?, 0)",
              wanted.word() + " story", "a new story ".repeat(40), wanted.user(), wanted.category());
      case ACCEPT_STORY -> page.change("update stories set accepted = 1 where id = ?", wanted.story());
      case REJECT_STORY -> page.change("update stories set accepted = 2 where id = ? and accepted = 0", wanted.story());
      default -> throw new IllegalArgumentException(interaction.path());
    };
  }

  private static Page story(Page page, Wanted wanted) throws SQLException {
    return page.list(
        "select s.title, s.body, u.nickname from stories s join users u on u.id = s.writer where s.id = ?", wanted.story());
  }

  private static Page comment(Page page, Wanted wanted) throws SQLException {
    return page.list(
        "select c.subject, c.body, u.nickname from comments c join users u on u.id = c.writer where c.id = ?",
        wanted.comment());
  }
}
