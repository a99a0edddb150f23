"""What the databases are about: six pairs of tables, with the words that questions use for them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A column of whole numbers: its name, the noun questions use, and its bounds."""

    name: str
    noun: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Category:
    """A column of a few texts: its name, the noun questions use, and the texts."""

    name: str
    noun: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name (the plural noun of its rows), names for its rows, and the columns beside id and name."""

    name: str
    one: str
    names: tuple[str, ...]
    number: Number
    category: Category


@dataclass(frozen=True, slots=True)
class Theme:
    """A child table whose column ``key`` holds the id of its row in the parent table."""

    parent: Table
    child: Table
    key: str


THEMES = (
    Theme(
        Table(
            "authors",
            "author",
            ("Mira Holt", "Jon Aske", "Lena Ruiz", "Tom Berg", "Ada Quist", "Noor Patel", "Ivo Marsh", "Sara Lind"),
            Number("birth_year", "birth year", 1920, 1999),
            Category("country", "country", ("Norway", "Chile", "India", "Kenya")),
        ),
        Table(
            "books",
            "book",
            (
                "Salt Road",
                "The Quiet Lamp",
                "North Wind",
                "Glass Orchard",
                "Winter Keys",
                "The Last Ferry",
                "Paper Moon",
                "Iron Garden",
                "Blue Hour",
                "A Small Storm",
                "The Map Room",
                "Stone Song",
                "Open Water",
                "The Ninth Door",
            ),
            Number("pages", "pages", 80, 900),
            Category("genre", "genre", ("novel", "poetry", "history", "crime")),
        ),
        "author_id",
    ),
    Theme(
        Table(
            "departments",
            "department",
            ("Sales", "Research", "Support", "Finance", "Design", "Legal", "Logistics", "Security"),
            Number("budget", "budget", 10, 500),
            Category("city", "city", ("Lyon", "Osaka", "Quito", "Leeds")),
        ),
        Table(
            "employees",
            "employee",
            (
                "Ann Cole",
                "Ben Ortiz",
                "Carl Dietz",
                "Dina Shah",
                "Eve Novak",
                "Finn Olsen",
                "Gita Rao",
                "Hugo Blanc",
                "Ines Costa",
                "Jack Moss",
                "Kim Tran",
                "Leo Fuchs",
                "Maya Stone",
                "Nils Hagen",
            ),
            Number("salary", "salary", 30, 150),
            Category("role", "role", ("manager", "engineer", "analyst", "assistant")),
        ),
        "department_id",
    ),
    Theme(
        Table(
            "teams",
            "team",
            ("Falcons", "Rovers", "Comets", "Miners", "Harriers", "Titans", "Pilots", "Lynx"),
            Number("founded", "founding year", 1880, 2010),
            Category("league", "league", ("north", "south", "east", "west")),
        ),
        Table(
            "players",
            "player",
            (
                "Abel Finch",
                "Bo Larsen",
                "Cem Aydin",
                "Dario Pace",
                "Emil Roth",
                "Fabio Neri",
                "Gus Palmer",
                "Hal Bishop",
                "Ian Frost",
                "Jun Sato",
                "Kofi Mensah",
                "Luis Vega",
                "Milo Grant",
                "Nico Weiss",
            ),
            Number("goals", "goals", 0, 40),
            Category("position", "position", ("keeper", "defender", "midfielder", "striker")),
        ),
        "team_id",
    ),
    Theme(
        Table(
            "shops",
            "shop",
            (
                "Corner Store",
                "Green Basket",
                "City Market",
                "Old Mill",
                "Harbour Shop",
                "Sun Bazaar",
                "Hill Foods",
                "Quick Stop",
            ),
            Number("staff", "staff", 2, 60),
            Category("town", "town", ("Arden", "Belmont", "Corby", "Dunmore")),
        ),
        Table(
            "products",
            "product",
            (
                "apple juice",
                "rye bread",
                "goat cheese",
                "olive oil",
                "green tea",
                "dark chocolate",
                "oat milk",
                "white rice",
                "tomato soup",
                "black beans",
                "plum jam",
                "sea salt",
                "honey cake",
                "pear cider",
            ),
            Number("price", "price", 1, 40),
            Category("kind", "kind", ("drink", "staple", "sweet", "dairy")),
        ),
        "shop_id",
    ),
    Theme(
        Table(
            "airlines",
            "airline",
            ("Aero Nord", "Blue Wing", "Condor Sky", "Delta Star", "Euro Jet", "Fly Pacific", "Golden Air", "High Path"),
            Number("planes", "planes", 5, 300),
            Category("country", "country", ("Peru", "Japan", "Egypt", "Canada")),
        ),
        Table(
            "flights",
            "flight",
            (
                "AN 101",
                "AN 202",
                "BW 310",
                "BW 411",
                "CS 120",
                "CS 530",
                "DS 640",
                "DS 777",
                "EJ 215",
                "EJ 390",
                "FP 800",
                "FP 912",
                "GA 055",
                "HP 404",
            ),
            Number("minutes", "minutes", 45, 800),
            Category("class", "class", ("cargo", "charter", "scheduled", "private")),
        ),
        "airline_id",
    ),
    Theme(
        Table(
            "zoos",
            "zoo",
            ("River Zoo", "Hill Park", "Bay Gardens", "Forest Walk", "Lake Zoo", "Palm House", "North Reserve", "Old Ark"),
            Number("visitors", "visitors", 20, 900),
            Category("region", "region", ("coast", "plain", "valley", "highland")),
        ),
        Table(
            "animals",
            "animal",
            ("Kito", "Bruno", "Tala", "Zuri", "Momo", "Rani", "Otis", "Pip", "Luna", "Gus", "Nala", "Boris", "Suri", "Hank"),
            Number("weight", "weight", 1, 900),
            Category("diet", "diet", ("plants", "meat", "fish", "insects")),
        ),
        "zoo_id",
    ),
)
