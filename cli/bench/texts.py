"""What the load generators say: our own sentences, about fifteen words each."""

SENTENCES = (
    "The ferry leaves the harbour at seven in the morning and comes back a little before noon.",
    "Nobody in the village could remember a winter in which the river had frozen so early.",
    "She folded the letter twice, put it into the drawer, and did not mention it again.",
    "Our train was late, so we bought two cups of coffee and waited under the old clock.",
    "A good map shows you the roads, and a better one shows you where the roads are missing.",
    "The children built a small dam of stones, and by evening it had become a lake.",
    "He counted the steps from the gate to the door, and there were always forty two.",
    "When the storm had passed, the whole street smelled of wet leaves and warm bread.",
    "The engineer listened to the motor for a minute and then tightened a single screw.",
    "Most of the shelves were empty, but the books that remained were worth the journey.",
    "They painted the kitchen yellow, because the windows looked to the north.",
    "Every instrument in the orchestra fell silent, and one flute went on alone.",
)
PER_REQUEST = 3


def line_text(index: int) -> str:
    """One sentence: the line with this number of a bulk input; they repeat after twelve."""
    return SENTENCES[index % len(SENTENCES)]


def request_text(index: int) -> str:
    """Three sentences: the text of the request with this number; they repeat after twelve."""
    return " ".join(SENTENCES[(index + offset) % len(SENTENCES)] for offset in range(PER_REQUEST))
