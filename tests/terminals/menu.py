"""A menu of three dishes, made with curses: arrow keys choose, Enter orders."""

import curses

DISHES = ("Pancakes", "Knödel", "寿司")


def main(window: curses.window) -> str:
    curses.start_color()
    curses.use_default_colors()
    curses.init_pair(1, curses.COLOR_WHITE, curses.COLOR_BLUE)
    at = 0
    while True:
        window.erase()
        window.border()
        window.addstr(0, 3, " Menu ", curses.A_BOLD)
        for row, dish in enumerate(DISHES):
            window.addstr(2 + row, 4, f" {dish} ", curses.color_pair(1) if row == at else curses.A_NORMAL)
        window.move(2 + at, 4)
        key = window.getch()
        if key == curses.KEY_DOWN:
            at = (at + 1) % len(DISHES)
        elif key in (10, 13):
            return DISHES[at]


if __name__ == "__main__":
    print("ordered:", curses.wrapper(main))
