"""The page in a real browser, as a person uses it."""

import os
import shutil
import time
from collections.abc import Callable

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium; skipped where there is none, which fails in CI."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        report = pytest.fail if os.environ.get("CI") else pytest.skip
        report("the page is tested in Chromium: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = tmp_path_factory.mktemp("profile")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1180,900"):
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options, Service(driver))
    yield running
    running.quit()


@pytest.fixture(scope="module")
def visit(browser, dreaming, opened) -> Callable[..., None]:
    """Opens the page of a run of a task; of the same task each time the same process."""
    pages = {}

    def open_page(task: str, *words: str) -> None:
        if task not in pages:
            pages[task] = opened(dreaming(task), *words)
        browser.get(pages[task].address)
        if browser.find_element("id", "again").is_selected():
            click(browser, "again")  # no new starts at the end: an untrained model sees ends everywhere
        until(browser, lambda: number(browser, "steps") > 2)

    return open_page


def until(browser, condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    WebDriverWait(browser, 60, 0.05).until(lambda _: condition())


def number(browser, name: str) -> int:
    return int(browser.find_element("id", name).text)


def click(browser, name: str) -> None:
    browser.find_element("id", name).click()


def pressed(browser, name: str) -> bool:
    return browser.find_element("id", name).get_attribute("aria-pressed") == "true"


def captions(browser) -> list[str]:
    return [each.text for each in browser.find_elements("css selector", "figcaption") if each.is_displayed()]


def taken(browser) -> str:
    """The name of the action that was taken last; empty if none was."""
    found = browser.find_elements("css selector", ".chip.taken")
    return browser.execute_script("return arguments[0].firstChild.textContent", found[0]) if found else ""


def colours(browser, selector: str) -> int:
    """How many colours a canvas shows."""
    script = """
        const canvas = document.querySelector(arguments[0]);
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        return seen.size;
    """
    return browser.execute_script(script, selector)


def paper(browser) -> int:
    """How bright the ground of a plot is."""
    script = "return [...document.querySelector('.plot canvas').getContext('2d').getImageData(2, 40, 1, 1).data]"
    return sum(browser.execute_script(script)[:3])


def follow(browser) -> None:
    """Keep every number of steps that the page shows from here on, and when: a look now and then would miss some."""
    script = """
        const place = document.getElementById("steps");
        window.shown = [];
        window.times = [];
        const look = () => { shown.push(Number(place.textContent)); times.push(performance.now()); };
        new MutationObserver(look).observe(place, { childList: true, characterData: true, subtree: true });
    """
    browser.execute_script(script)


def still(browser) -> bool:
    """Whether no step is taken for a while."""
    before = number(browser, "steps")
    time.sleep(0.5)
    return number(browser, "steps") == before


def starts(browser) -> int:
    """How often the page began anew since it is followed."""
    return browser.execute_script("return shown").count(0)


def complaints(browser) -> list[str]:
    return [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]


def test_a_person_plays_in_the_dream_by_keys_and_hands_over(browser, visit):
    visit("toy_catch", "--context", "2")
    until(browser, lambda: captions(browser) == ["dreamt"])
    assert colours(browser, "figure.dream canvas") > 3
    for key, name in ((Keys.ARROW_RIGHT, "right"), ("a", "left")):
        ActionChains(browser).key_down(key).perform()
        until(browser, lambda name=name: taken(browser) == name)
        ActionChains(browser).key_up(key).perform()
        until(browser, lambda: taken(browser) == "noop")
    click(browser, "agent")
    assert pressed(browser, "agent") and not pressed(browser, "person")
    before = number(browser, "steps")
    until(browser, lambda: number(browser, "steps") > before + 3)
    ActionChains(browser).key_down(Keys.ARROW_LEFT).perform()
    until(browser, lambda: taken(browser) == "left" and pressed(browser, "person"))
    ActionChains(browser).key_up(Keys.ARROW_LEFT).send_keys("o").perform()
    until(browser, lambda: pressed(browser, "agent"))
    assert not complaints(browser)


def test_the_mouse_will_do(browser, visit):
    visit("toy_catch")
    chip = browser.find_elements("css selector", ".chip")[2]
    ActionChains(browser).click_and_hold(chip).perform()
    until(browser, lambda: taken(browser) == "right")
    ActionChains(browser).release().perform()
    until(browser, lambda: taken(browser) == "noop")


def test_beside_the_truth_there_are_three_pictures_and_the_episode_ends(browser, visit):
    visit("toy_catch")
    browser.execute_script("document.getElementById('speed').value = 1")  # so that it does not end while we look
    click(browser, "beside")
    until(browser, lambda: captions(browser) == ["dreamt", "truth", "difference"])
    assert colours(browser, "figure.truth canvas") == 3  # black, white and the ball
    browser.execute_script("document.getElementById('speed').value = 12")
    until(browser, lambda: "real episode has ended" in browser.find_element("id", "message").text)
    until(browser, lambda: captions(browser) == ["dreamt", "truth, where it ended", "difference, where it ended"])
    follow(browser)
    click(browser, "begin")
    until(browser, lambda: starts(browser) == 1)
    click(browser, "again")
    until(browser, lambda: starts(browser) > 2)  # by itself


def test_pause_and_speed(browser, visit):
    visit("toy_catch")
    follow(browser)
    click(browser, "pause")
    until(browser, lambda: still(browser))
    before = browser.execute_script(
        "const s = document.getElementById('speed'); s.value = 4; s.oninput(); times = [performance.now()];"
        "return Number(document.getElementById('steps').textContent);"
    )
    ActionChains(browser).send_keys("p").perform()
    until(browser, lambda: number(browser, "steps") >= before + 8)
    times = browser.execute_script("return times")
    assert times[8] - times[0] > 6 * 250  # the first two come at once; a busy machine may be slower, none is faster
    assert browser.find_element("id", "rate").text == "4"


def test_plots_move_and_follow_the_scheme_of_colours(browser, visit):
    visit("gym_CartPole-v1")
    names = [each.get_attribute("aria-label") for each in browser.find_elements("css selector", ".plot canvas")]
    assert sorted(names) == ["continue", "reward", "value", "vector 0", "vector 1", "vector 2", "vector 3"]
    pages = []
    for scheme, bright in (("light", True), ("dark", False)):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        until(browser, lambda bright=bright: paper(browser) > 600 if bright else paper(browser) < 200)
        pages.append(browser.find_element("css selector", "body").value_of_css_property("background-color"))
        until(browser, lambda: colours(browser, '[aria-label="vector 2"]') > 10)
    assert pages[0] != pages[1]
    assert browser.find_elements("css selector", ".chip kbd")[0].text == "←"
    assert captions(browser) == ["truth, where the dream began"]
    click(browser, "beside")
    until(browser, lambda: captions(browser) == ["truth, as the environment draws it"])


def test_nothing_moves_under_the_mouse_at_a_new_start(browser, visit):
    visit("gym_CartPole-v1")
    follow(browser)
    script = """
        const button = document.getElementById("beside");
        window.places = new Set();
        const look = () => { places.add(button.getBoundingClientRect().top); requestAnimationFrame(look); };
        look();
    """
    browser.execute_script(script)
    for count in (1, 2, 3):
        click(browser, "begin")
        until(browser, lambda count=count: starts(browser) == count and number(browser, "steps") > 1)
    assert browser.execute_script("return places.size") == 1


def test_continuous_actions_have_sliders_and_keys(browser, visit):
    visit("gym_Pendulum-v1")
    slider = browser.find_element("css selector", "#controls input")
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("-2", "2")
    told = browser.find_element("css selector", "#controls label span")
    ActionChains(browser).key_down(Keys.ARROW_RIGHT).perform()
    until(browser, lambda: told.text == "2.00")
    ActionChains(browser).key_up(Keys.ARROW_RIGHT).perform()
    until(browser, lambda: told.text == "0.00")
    browser.execute_script("arguments[0].value = -1; arguments[0].dispatchEvent(new Event('input'))", slider)
    until(browser, lambda: told.text == "-1.00")


def test_everything_comes_from_this_machine(browser, visit):
    visit("gym_Pendulum-v1")
    asked = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert asked and all(name.startswith("http://127.0.0.1:") for name in asked)
    assert not complaints(browser)
    browser.get(browser.current_url.partition("?")[0])
    until(browser, lambda: "open the address that reverie printed" in browser.page_source)  # text is parsed bit by bit


def test_a_server_that_is_gone_is_told(browser, dreaming, opened):
    page = opened(dreaming("toy_catch_small", world__cnn="stride"))
    browser.get(page.address)
    click(browser, "again")
    until(browser, lambda: number(browser, "steps") > 0)
    page.interrupt()
    until(browser, lambda: "Is reverie still running?" in browser.find_element("id", "message").text)
