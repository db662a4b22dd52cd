package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** Sells seats of express buses. A bus leaves when it is full, and its route gets a new one. */
final class TicketCenter implements Application {
  static final int ROUTES = 10;
  static final int BUSES_OF_A_ROUTE = 3;

  private static final int SEATS = 40;
  static final Members MEMBERS =
      new Members(
          "passengers",
          "",
          "tickets",
          "deed varchar(10), departure bigint, seat int, outcome varchar(12)");

  @Override
  public String name() {
    return "ticket-center";
  }

  @Override
  public List<String> tables() {
    return MEMBERS.tables(
        "create table if not exists departures(id bigint auto_increment primary key,"
            + " route int not null, sold int not null, is_open int not null)",
        "create index if not exists departures_route on departures(route, is_open, id)",
        "create table if not exists bookings(id bigint auto_increment primary key,"
            + " departure bigint not null, seat int not null, member bigint not null)",
        "create index if not exists bookings_departure on bookings(departure, seat)",
        "create index if not exists bookings_member on bookings(member, id)");
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (Sql.number(database, "select count(*) from departures") > 0) {
      return;
    }
    for (int bus = 0; bus < ROUTES * BUSES_OF_A_ROUTE; bus++) {
      open(database, bus % ROUTES);
    }
  }

  private static void open(Connection database, long route) throws SQLException {
    Sql.change(
        database, "insert into departures(route, sold, is_open) values(?, 0, 1)", route);
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        new Operation(
            "schedule", 30, false, Arguments.below(ROUTES), TicketCenter::schedule),
        new Operation(
            "seats", 25, false, Arguments.below(ROUTES, BUSES_OF_A_ROUTE), TicketCenter::seats),
        new Operation("status", 15, false, Arguments.below(), TicketCenter::status),
        new Operation(
            "buy",
            22,
            true,
            Arguments.below(ROUTES, BUSES_OF_A_ROUTE, SEATS, 4),
            TicketCenter::buy),
        new Operation("cancel", 8, true, Arguments.below(), TicketCenter::cancel));
  }

  private static String schedule(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int route = Arguments.within(arguments[0], ROUTES);
    return "buses of route "
        + route
        + " and their free seats: "
        + Sql.text(
            database,
            "select id, "
                + SEATS
                + " - sold from departures where route = ? and is_open = 1 order by id limit 3",
            route);
  }

  /** Returns the id of a bus that the arguments choose. */
  private static long bus(Connection database, long[] arguments) throws SQLException {
    return Sql.number(
        database,
        "select id from departures where route = ? and is_open = 1 order by id limit 1 offset ?",
        Arguments.within(arguments[0], ROUTES),
        Arguments.within(arguments[1], BUSES_OF_A_ROUTE));
  }

  private static Set<Long> taken(Connection database, long bus) throws SQLException {
    Set<Long> taken = new HashSet<>();
    for (long[] row : Sql.rows(database, "select seat from bookings where departure = ?", bus)) {
      taken.add(row[0]);
    }
    return taken;
  }

  private static String seats(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long bus = bus(database, arguments);
    Set<Long> taken = taken(database, bus);
    StringBuilder map = new StringBuilder("bus " + bus + " ");
    for (long seat = 0; seat < SEATS; seat++) {
      map.append(taken.contains(seat) ? 'x' : '.');
    }
    return map.toString();
  }

  private static String status(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "bus and seat of your last tickets: "
        + Sql.text(
            database,
            "select departure, seat from bookings where member = ? order by id desc limit 5",
            member);
  }

  /** Buys the third argument's seat, or the next free one unless the fourth forbids it. */
  private static String buy(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long bus = bus(database, arguments);
    long seat = Arguments.within(arguments[2], SEATS);
    boolean isStrict = Arguments.within(arguments[3], 4) == 0;
    Optional<long[]> row =
        Sql.row(
            database,
            "select route, sold from departures where id = ? and is_open = 1 for update",
            bus);
    Set<Long> taken = row.isEmpty() ? Set.of() : taken(database, bus);
    for (int tries = 0; tries < SEATS && !isStrict && taken.contains(seat); tries++) {
      seat = (seat + 1) % SEATS;
    }
    String outcome = row.isEmpty() ? "gone" : taken.contains(seat) ? "taken" : "bought";
    if (outcome.equals("bought")) {
      sell(database, member, bus, seat, row.get());
    }
    MEMBERS.record(database, member, number, "buy", bus, seat, outcome);
    return outcome + " " + bus + " " + seat;
  }

  private static void sell(Connection database, long member, long bus, long seat, long[] row)
      throws SQLException {
    long route = row[0];
    boolean isFull = row[1] + 1 == SEATS;
    Sql.change(
        database,
        "update departures set sold = sold + 1, is_open = ? where id = ?",
        isFull ? 0 : 1,
        bus);
    if (isFull) {
      // tickets keeps who sat where, so that bookings has only the buses that can be chosen
      Sql.change(database, "delete from bookings where departure = ?", bus);
      open(database, route);
    } else {
      Sql.change(
          database,
          "insert into bookings(departure, seat, member) values(?, ?, ?)",
          bus,
          seat,
          member);
    }
  }

  private static String cancel(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long[] ticket =
        Sql.row(
                database,
                "select id, departure, seat from bookings where member = ?"
                    + " order by id desc limit 1",
                member)
            .orElse(new long[3]);
    Sql.row(database, "select id from departures where id = ? for update", ticket[1]);
    // the bus may have left before its row was locked
    boolean isDone = Sql.change(database, "delete from bookings where id = ?", ticket[0]) == 1;
    if (isDone) {
      Sql.change(database, "update departures set sold = sold - 1 where id = ?", ticket[1]);
    }
    String outcome = isDone ? "cancelled" : "no ticket";
    MEMBERS.record(database, member, number, "cancel", ticket[1], ticket[2], outcome);
    return outcome + " " + ticket[1] + " " + ticket[2];
  }

  @Override
  public Tally tally(Connection database, long member) throws SQLException {
    return MEMBERS.tally(database, member);
  }

  @Override
  public Optional<String> contradiction(Connection database) throws SQLException {
    String held =
        "sum(case outcome when 'bought' then 1 when 'cancelled' then -1 else 0 end)";
    return MEMBERS.contradiction(
        database,
        new Check(
            "tickets: seat %2$s of bus %1$s was sold %3$s times more than it was cancelled",
            "select departure, seat, " + held + " from tickets group by departure, seat"
                + " having " + held + " > 1 or " + held + " < 0"),
        new Check(
            "bookings: seat %2$s of bus %1$s was sold %3$s times",
            "select departure, seat, count(*) from bookings group by departure, seat"
                + " having count(*) > 1"),
        new Check(
            "departures: %2$s seats of bus %1$s count as sold, but %3$s have tickets",
            "select d.id, d.sold, coalesce(" + held + ", 0) from departures d"
                + " left join tickets t on t.departure = d.id group by d.id, d.sold"
                + " having d.sold <> coalesce(" + held + ", 0)"),
        new Check(
            "departures: %2$s seats of bus %1$s count as sold, but %3$s have bookings",
            "select d.id, d.sold, count(b.id) from departures d"
                + " left join bookings b on b.departure = d.id where d.is_open = 1"
                + " group by d.id, d.sold having d.sold <> count(b.id)"));
  }
}
