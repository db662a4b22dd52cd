package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/**
 * Exchanges stocks. An order is for one lot of shares, and the exchange matches it with the best
 * resting offer; the cash or the shares of a resting offer are set aside.
 */
final class Ftex implements Application {
  static final int STOCKS = 10;

  /** The most resting offers of one side of a stock. */
  static final int OFFERS_MOST = 50;

  private static final long LOT = 10;
  private static final long CASH = 100_000;
  private static final long SHARES = 100;
  private static final long PRICE_LEAST = 50;
  private static final long PRICE_MOST = 200;
  private static final int BUY = 1;
  private static final int SELL = -1;
  static final Members MEMBERS =
      new Members(
          "traders",
          "cash bigint not null default " + CASH,
          "deals",
          "stock int, side int, price bigint, other bigint, outcome varchar(12)");

  @Override
  public String name() {
    return "ftex";
  }

  @Override
  public List<String> tables() {
    return MEMBERS.tables(
        "create table if not exists stocks(id int primary key, price bigint not null,"
            + " volume bigint not null)",
        "create table if not exists holdings(member bigint not null, stock int not null,"
            + " shares bigint not null, primary key(member, stock))",
        "create table if not exists offers(id bigint auto_increment primary key,"
            + " stock int not null, side int not null, price bigint not null,"
            + " member bigint not null)",
        "create index if not exists offers_price on offers(stock, side, price, id)",
        "create index if not exists offers_member on offers(member, id)");
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (Sql.number(database, "select count(*) from stocks") > 0) {
      return;
    }
    for (int stock = 1; stock <= STOCKS; stock++) {
      Sql.change(database, "insert into stocks values(?, 100, 0)", stock);
    }
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    if (MEMBERS.join(database, member)) {
      Sql.change(
          database,
          "insert into holdings(member, stock, shares) select t.member, s.id, "
              + SHARES
              + " from traders t cross join stocks s where t.member = ?",
          member);
    }
  }

  @Override
  public List<Operation> operations() {
    Operation.Choice stock = Arguments.below(STOCKS);
    return List.of(
        new Operation("quote", 30, false, stock, Ftex::quote),
        new Operation("book", 20, false, stock, Ftex::book),
        new Operation("portfolio", 12, false, Arguments.below(), Ftex::portfolio),
        new Operation("history", 5, false, Arguments.below(), Ftex::history),
        new Operation("limit", 18, true, Arguments.below(STOCKS, 2, 11), Ftex::limit),
        new Operation("market", 10, true, Arguments.below(STOCKS, 2), Ftex::market),
        new Operation("cancel", 5, true, Arguments.below(), Ftex::cancel));
  }

  private static int stock(long[] arguments) {
    return 1 + Arguments.within(arguments[0], STOCKS);
  }

  private static int side(long[] arguments) {
    return Arguments.within(arguments[1], 2) == 0 ? BUY : SELL;
  }

  private static String quote(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "price and volume: "
        + Sql.text(database, "select price, volume from stocks where id = ?", stock(arguments));
  }

  private static String book(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int stock = stock(arguments);
    String query = "select price from offers where stock = ? and side = ? order by price ";
    return "bids: "
        + Sql.text(database, query + "desc limit 5", stock, BUY)
        + "; asks: "
        + Sql.text(database, query + "limit 5", stock, SELL);
  }

  private static String portfolio(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "cash "
        + Sql.number(database, "select cash from traders where member = ?", member)
        + "; shares "
        + Sql.text(
            database, "select shares from holdings where member = ? order by stock", member);
  }

  private static String history(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select stock, side, price, outcome from deals where member = ? order by id desc limit 5",
        member);
  }

  private static String limit(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int stock = stock(arguments);
    long price = lock(database, stock) + Arguments.within(arguments[2], 11) - 5;
    long limit = Math.min(PRICE_MOST, Math.max(PRICE_LEAST, price));
    return order(database, member, number, stock, side(arguments), limit, true);
  }

  private static String market(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int stock = stock(arguments);
    lock(database, stock);
    long limit = side(arguments) == BUY ? PRICE_MOST : PRICE_LEAST;
    return order(database, member, number, stock, side(arguments), limit, false);
  }

  /** Locks a stock, and with it its offers and holdings; returns its price. */
  private static long lock(Connection database, long stock) throws SQLException {
    return Sql.number(database, "select price from stocks where id = ? for update", stock);
  }

  /** Returns the id, member and price of the offer with the lowest or the highest price. */
  private static Optional<long[]> offer(Connection database, int stock, int side, boolean isLowest)
      throws SQLException {
    return Sql.row(
        database,
        "select id, member, price from offers where stock = ? and side = ? order by price "
            + (isLowest ? "" : "desc")
            + ", id limit 1",
        stock,
        side);
  }

  /** Matches an order on a stock that is locked, or lets it rest if it may. */
  private static String order(
      Connection database,
      long member,
      long number,
      int stock,
      int side,
      long limit,
      boolean mayRest)
      throws SQLException {
    Optional<long[]> match =
        offer(database, stock, -side, side == BUY).filter(row -> side * (limit - row[2]) >= 0);
    long price = match.map(row -> row[2]).orElse(limit);
    // a match and an offer that makes room are settled alike: the offer goes, its member is paid
    Optional<long[]> gone = match.isPresent() || !mayRest ? match : worst(database, stock, side);
    long other = gone.map(row -> row[1]).orElse(member);
    // all lock traders in the order of their ids, so none waits for one that waits for it
    MEMBERS.lock(database, Math.min(member, other), "cash");
    MEMBERS.lock(database, Math.max(member, other), "cash");
    String outcome = match.isPresent() ? "traded" : "resting";
    if (match.isEmpty() && !mayRest) {
      outcome = "no offer";
    } else if (!canPay(database, member, stock, side, price)) {
      outcome = side == BUY ? "no cash" : "no shares";
    } else {
      pay(database, member, stock, side, -price);
      if (gone.isPresent()) {
        Sql.change(database, "delete from offers where id = ?", gone.get()[0]);
        pay(database, other, stock, side, gone.get()[2]);
      }
      if (match.isPresent()) {
        pay(database, member, stock, -side, price);
        Sql.change(
            database,
            "update stocks set price = ?, volume = volume + ? where id = ?",
            price,
            LOT,
            stock);
      } else {
        Sql.change(
            database,
            "insert into offers(stock, side, price, member) values(?, ?, ?, ?)",
            stock,
            side,
            price,
            member);
      }
    }
    MEMBERS.record(database, member, number, stock, side, price, other, outcome);
    return outcome + " at " + price;
  }

  /** Returns the worst offer of a side that is full. */
  private static Optional<long[]> worst(Connection database, int stock, int side)
      throws SQLException {
    String count = "select count(*) from offers where stock = ? and side = ?";
    return Sql.number(database, count, stock, side) < OFFERS_MOST
        ? Optional.empty()
        : offer(database, stock, side, side == BUY);
  }

  private static boolean canPay(Connection database, long member, int stock, int side, long price)
      throws SQLException {
    if (side == BUY) {
      String cash = "select cash from traders where member = ?";
      return Sql.number(database, cash, member) >= price * LOT;
    }
    String shares = "select shares from holdings where member = ? and stock = ?";
    return Sql.number(database, shares, member, stock) >= LOT;
  }

  /** Gives what a buyer pays with, a lot's price, or what a seller pays with; negative takes it. */
  private static void pay(Connection database, long member, long stock, int side, long price)
      throws SQLException {
    if (side == BUY) {
      Sql.change(
          database, "update traders set cash = cash + ? where member = ?", price * LOT, member);
    } else {
      Sql.change(
          database,
          "update holdings set shares = shares + ? where member = ? and stock = ?",
          Long.signum(price) * LOT,
          member,
          stock);
    }
  }

  /** Cancels the oldest offer of a member. */
  private static String cancel(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long[] offer =
        Sql.row(
                database,
                "select id, stock, side, price from offers where member = ? order by id limit 1",
                member)
            .orElse(new long[4]);
    lock(database, offer[1]);
    // the offer may have been matched before the stock was locked
    boolean isDone = Sql.change(database, "delete from offers where id = ?", offer[0]) == 1;
    if (isDone) {
      pay(database, member, offer[1], (int) offer[2], offer[3]);
    }
    String outcome = isDone ? "cancelled" : "no offer";
    MEMBERS.record(database, member, number, offer[1], offer[2], offer[3], null, outcome);
    return outcome;
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
            "traders and their offers have %s cash, of %s",
            "select * from (select (select coalesce(sum(cash), 0) from traders)"
                + " + (select coalesce(sum(price), 0) from offers where side = 1) * " + LOT
                + " as cash, (select count(*) from traders) * " + CASH + " as given from stocks"
                + " where id = 1) t where cash <> given"),
        new Check(
            "traders and their offers have %2$s shares of stock %1$s, of %3$s",
            "select * from (select s.id, (select coalesce(sum(h.shares), 0) from holdings h"
                + " where h.stock = s.id) + (select count(*) from offers o where o.stock = s.id"
                + " and o.side = -1) * " + LOT + " as shares, (select count(*) from traders) * "
                + SHARES + " as given from stocks s) t where shares <> given"),
        new Check(
            "offers: someone bids %2$s for stock %1$s, which is offered for %3$s",
            "select b.stock, max(b.price), min(a.price) from offers b join offers a"
                + " on a.stock = b.stock and a.side = -1 where b.side = 1 group by b.stock"
                + " having max(b.price) >= min(a.price)"),
        new Check(
            "traders: member %s has %s cash and %s shares of stock %s",
            "select t.member, t.cash, h.shares, h.stock from traders t join holdings h"
                + " on h.member = t.member where t.cash < 0 or h.shares < 0"),
        new Check(
            "stocks: %s has a volume of %s shares, but %s were traded",
            "select s.id, s.volume, count(d.id) * " + LOT + " from stocks s left join deals d"
                + " on d.stock = s.id and d.outcome = 'traded' group by s.id, s.volume"
                + " having s.volume <> count(d.id) * " + LOT));
  }
}
