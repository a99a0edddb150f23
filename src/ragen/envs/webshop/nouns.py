"""The nouns of a product title, by rule.

The original asks spaCy's ``en_core_web_lg`` for the words it tags NOUN or PROPN. That model is a download of 560 MB, so
here a word of a title counts as a noun unless it is known not to be one: it holds a digit, it has one letter, it is in
a closed list (function words, colors, sizes, units of measure, common adjectives, adverbs and participles of shop
titles), or its ending marks an adjective or adverb (-able, -ible, -ful, -less, -ous, -ly, -proof, …). Titles are mostly
strings of nouns and brand names, so the default is "noun". What follows from that: a brand or an unlisted adjective
counts as a noun (spaCy calls many of them PROPN too), and the share of common nouns that the reward compares with 0.1
and 0.2 differs by a word here and there.
"""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ENDINGS = ("able", "ible", "ful", "less", "ous", "ly", "proof", "ish", "ical", "ive", "ary", "resistant", "friendly")
_NOUNS = """
table cable vegetable adhesive olive archive drive assembly belly butterfly family jelly supply fly doily lily
polish dish fish relish radish finish varnish hive detective native dictionary library anniversary
"""  # in spite of their endings
_OTHERS = """
a an the this that these those some any each every all both no not and or but nor so for of in on at by to
from with without into onto over under above below between behind before after during through against about as
per via plus i you he she it we they me him her us them my your his its our their who which what whose is are
was were be been being am do does did has have had can could will would may might must shall should up down
off out than then there here when where while if also only very more most much many less least own same other
another such just too etc one two three four five six seven eight nine ten dozen first second third black
white red blue green yellow orange purple pink brown gray grey beige navy teal turquoise burgundy maroon ivory
khaki lavender violet magenta cyan indigo coral golden silver multicolor multicolored colorful clear dark
light bright small medium large x xs xl xxl xxxl xx big little mini tiny huge giant tall short long wide
narrow slim thick thin deep inch inches foot feet ft cm mm ml oz ounce ounces lb lbs pound pounds gram grams
kg liter liters yd yds pcs pc qty new old good best better great nice perfect ideal pure real true natural
organic fresh raw healthy safe soft hard strong heavy lightweight smooth rough warm cool cold hot dry wet
clean easy quick fast slow quiet loud simple modern classic vintage retro traditional contemporary rustic
antique elegant cute sexy cozy comfy fashionable stylish casual formal sport sporty floral striped plaid round
square rectangular oval flat curved high low double single triple dual full half empty left right front back
inner outer indoor outdoor upper lower top personal professional commercial industrial universal original
essential premium deluxe basic standard regular extra super ultra special unique custom adjustable removable
portable foldable electric electronic digital manual automatic wireless magnetic solar smart wooden metallic
plastic hydrating moisturizing cleansing washable waterproof handmade homemade assorted certified unscented
scented flavored free vegan vegetarian kosher stainless mid everyday daily weekly adult young elderly made
make makes making use used uses using fit fits fitted get gets keep keeps look looks include includes included
including printed padded pointed closed open ended sleeved hooded lined wired mounted coated plated insulated
reinforced breathable stretchy refillable reusable disposable decorative relaxed elastic
"""
NOUNS, OTHERS = frozenset(_NOUNS.split()), frozenset(_OTHERS.split())


@lru_cache(maxsize=1 << 14)
def nouns(title: str) -> tuple[str, ...]:
    """The nouns of a title in lower case, in order, repeated as often as they stand there.

    >>> nouns("Stylish Women's Waterproof Hiking Boots for Work, Black, Size 8")
    ("women's", 'hiking', 'boots', 'work', 'size')
    """
    return tuple(word for word in _WORD.findall(title.lower()) if _is_noun(word))


def _is_noun(word: str) -> bool:
    if word in NOUNS:
        return True
    plain = len(word) > 1 and not any(character.isdigit() for character in word)
    return plain and word not in OTHERS and not word.endswith(_ENDINGS)
