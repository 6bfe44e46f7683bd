"""The programs of `make gallery`, which write the pictures of docs/gallery.md.

Each module measures one picture's data, and writes them to a JSON file. `gallery.draw` draws all
pictures from these files, and needs only matplotlib.
"""
