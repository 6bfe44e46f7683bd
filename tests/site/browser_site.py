"""Tests of the site in the distribution's Chromium.

    LEGACY_OPT_SITE=FOLDER AXE=axe.min.js python -m pytest tests/site/browser_site.py

FOLDER is the built site. Screenshots are written into FOLDER/../screenshots, to be looked at.
"""

import functools
import html.parser
import http.server
import json
import os
import threading
import urllib.parse
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.command_line.test_prove_page import example

SITE = Path(os.environ["LEGACY_OPT_SITE"])
AXE = Path(os.environ["AXE"]).read_text(encoding="utf-8")
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
SECONDS = 20
PHONE = 360  # the width of a small phone in pixels
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
# Pages with tables of every kind, code, formulas, cards and pictures.
SHOWN = ["index.html", "keras.html", "catalogue.html", "gallery.html", "custom_optimizer.html"]
RULES = ["color-contrast", "image-alt", "link-name", "document-title", "html-has-lang"]
RULES += ["duplicate-id-aria", "heading-order", "list", "listitem", "button-name", "label"]
RULES += ["landmark-one-main", "landmark-no-duplicate-main", "landmark-main-is-top-level"]
RULES += ["landmark-unique", "landmark-banner-is-top-level", "bypass"]
RUN_AXE = """
const done = arguments[arguments.length - 1];
const text = node => [node.html.slice(0, 120), node.failureSummary.slice(0, 300)];
axe.run(document, {runOnly: {type: "rule", values: arguments[0]}}).then(
  result => done(result.violations.map(each => [each.id, each.nodes.map(text)])),
  error => done([["error", String(error)]]));
"""


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def site():
    """Serves the site on this machine, and returns its address."""
    handler = functools.partial(Server, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(DRIVER)) as driver:
        driver.set_script_timeout(60)
        yield driver


def width(browser, pixels, height=900):
    size = dict(width=pixels, height=height, deviceScaleFactor=1, mobile=False)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def theme(browser, name):
    browser.execute_script(
        "localStorage.setItem('theme', arguments[0]); document.body.dataset.theme = arguments[0]",
        name,
    )


class Links(html.parser.HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            if (tag, name) in (("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")):
                self.links.append(value)


def test_links_and_anchors_lead_somewhere():
    pages = {name: Links(SITE / name) for name in PAGES}
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(name), parts.path or "."))
            target = name if not parts.path else urllib.parse.unquote(target)
            anchor = urllib.parse.unquote(parts.fragment)
            anchors = pages[target].anchors if target in pages else {anchor}
            if not (SITE / target).exists() or (anchor and anchor not in anchors):
                broken.append((name, link))
    assert broken == []


def results(browser):
    """Returns the links that a search has found, when it has ended."""
    ended = lambda driver: "found" in driver.find_element(By.ID, "search-results").text  # noqa: E731
    WebDriverWait(browser, SECONDS).until(ended)
    return browser.find_elements(By.CSS_SELECTOR, "#search-results li > a")


@pytest.mark.parametrize(
    "words, page",
    [
        ("LazyAdam", "adam_family"),
        ("custom optimizer", "custom_optimizer"),
        ("LazyAdamOptimizer", "reference/legacy_opt"),
        ("parameter servers", "clusters"),
    ],
)
def test_search_finds(site, browser, words, page):
    width(browser, 1200)
    browser.get(site + "search.html?q=" + urllib.parse.quote(words))
    found = results(browser)
    links = [each.get_attribute("href") for each in found]
    assert any(link.split("?")[0].split("#")[0].endswith(f"{page}.html") for link in links), links


def test_search_works_without_a_server(browser):
    browser.get((SITE / "search.html").as_uri() + "?q=AdagradDecay")
    assert results(browser)


def test_copy_buttons_copy_the_code_without_prompts(site, browser):
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    grant = {"permissions": permissions, "origin": site.rstrip("/")}
    browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    width(browser, 1200)
    browser.get(site + "script_stopped.html")
    blocks = browser.find_elements(By.CSS_SELECTOR, "div.highlight-console, div.highlight-python")
    assert len(blocks) > 2
    copied = []
    for block in blocks:
        button = block.find_element(By.CSS_SELECTOR, "button.copybtn")
        browser.execute_script(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", block
        )
        # Browsers copy only for a reader's own click; the button shows when the mouse is there.
        webdriver.ActionChains(browser).move_to_element(button).click(button).perform()
        copying = lambda driver, found=button: "success" in found.get_attribute("class")  # noqa: E731
        WebDriverWait(browser, SECONDS).until(copying)
        read = "navigator.clipboard.readText().then(arguments[0], e => arguments[0](String(e)))"
        copied.append(browser.execute_async_script(read))
        text = block.find_element(By.CSS_SELECTOR, "pre").get_attribute("textContent")
        if "highlight-python" in block.get_attribute("class"):
            assert copied[-1].strip() == text.strip()
        else:
            commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            assert copied[-1].splitlines() == commands
    assert any(text.startswith("legacy-opt ") for text in copied)


@pytest.mark.parametrize("name", PAGES)
def test_a_page(site, browser, name):
    """No sideways scroll on a phone; contrast and landmarks in both themes; no request leaves."""
    browser.get_log("performance")
    width(browser, PHONE)
    browser.get(site + name)
    scrolled = browser.execute_script("return document.documentElement.scrollWidth")
    wide = browser.execute_script(
        "return [...document.querySelectorAll('article *')].filter(each =>"
        " each.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)"
        ".map(each => each.outerHTML.slice(0, 100))"
    )
    assert scrolled <= PHONE, wide
    width(browser, 1300)
    for each in "light", "dark":
        theme(browser, each)
        browser.execute_script(AXE)
        violations = browser.execute_async_script(RUN_AXE, RULES)
        assert violations == [], (each, json.dumps(violations, indent=1)[:3000])
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert urls
    assert [url for url in urls if not url.startswith((site, "data:", "blob:"))] == []


@pytest.mark.parametrize("name", SHOWN)
def test_screenshots(site, browser, name):
    folder = SITE.parent / "screenshots"
    folder.mkdir(exist_ok=True)
    for pixels in 360, 1300:
        for each in "light", "dark":
            width(browser, pixels, 1400)
            browser.get(site + name)
            theme(browser, each)
            path = folder / f"{Path(name).stem}-{pixels}-{each}.png"
            assert browser.save_screenshot(str(path))


@pytest.mark.parametrize("each", ["light", "dark"])
def test_a_page_of_prove(browser, each, tmp_path):
    """No sideways scroll on a phone, no message in the console, contrast in both themes."""
    path = tmp_path / "prove.html"
    path.write_text(example(), encoding="utf-8")
    media = {"features": [{"name": "prefers-color-scheme", "value": each}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    folder = SITE.parent / "screenshots"
    folder.mkdir(exist_ok=True)
    for pixels in PHONE, 1300:
        browser.get_log("browser")
        width(browser, pixels, 4000)
        browser.get(path.as_uri())
        sizes = "return [document.documentElement.scrollWidth, document.querySelector("
        sizes += "'figcaption li').clientHeight, document.querySelector('.plot > svg').clientWidth]"
        scrolled, line, plot = browser.execute_script(sizes)
        assert scrolled <= pixels and line < 120 and plot > 0.6 * min(pixels, 800)
        assert browser.get_log("browser") == []
        assert browser.save_screenshot(str(folder / f"prove-{pixels}-{each}.png"))
        browser.execute_script("document.querySelector('details').open = true")
        browser.execute_script(AXE)
        violations = browser.execute_async_script(RUN_AXE, RULES)
        assert violations == [], json.dumps(violations, indent=1)[:3000]
