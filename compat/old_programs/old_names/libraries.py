"""Names of NumPy, SciPy and Python that old scripts use, and that newer versions lack.

The rows of `NAMES` have the form of the rows in `table.py`; a name with a builtin and advice has
returned with another meaning. `MODULES` maps modules to the modules that have their names.
"""

_FINANCE = "The package numpy_financial has it (pip install numpy-financial)."
_FROM_2_ON = "NumPy 2.0 and newer have it there."

NAMES = (
    ("numpy", "complex float int math object str unicode=str", "builtins"),
    ("numpy", "bool", "builtins", "In NumPy 2, this is numpy.bool_ instead."),
    ("numpy", "long=int", "builtins", "In NumPy 2, this is the long of C instead."),
    (
        "numpy",
        """
        Inf=inf Infinity=inf NAN=nan NaN=nan PINF=inf infty=inf alltrue=all bool8=bool_
        bytes0=bytes_ cfloat=complex128 clongfloat=clongdouble complex_=complex128
        cumproduct=cumprod float_=float64 int0=intp longcomplex=clongdouble
        longfloat=longdouble mat=asmatrix object0=object_ product=prod round_=round row_stack=vstack
        singlecomplex=complex64 sometrue=any str0=str_ string_=bytes_
        rank=ndim typeDict=sctypeDict uint0=uintp unicode_=str_ void0=void
        """,
        "numpy",
    ),
    (
        "numpy",
        "AxisError ComplexWarning ModuleDeprecationWarning VisibleDeprecationWarning",
        "numpy.exceptions",
        "NumPy 1.25 and newer have it there.",
    ),
    ("numpy", "RankWarning", "numpy.exceptions", _FROM_2_ON),
    ("numpy", "trapz=trapezoid", "numpy", _FROM_2_ON),
    ("numpy", "loads", None, "Use pickle.loads."),
    ("numpy.lib", "pad", "numpy"),
    ("numpy", "NINF", None, "Use -numpy.inf."),
    ("numpy", "asfarray", None, "Use numpy.asarray(…, dtype=float)."),
    ("numpy", "asscalar", None, "Use the array's method item()."),
    ("numpy", "alen", None, "Use len."),
    ("numpy", "cast", None, "Use numpy.asarray(…).astype(dtype)."),
    ("numpy", "find_common_type", None, "Use numpy.result_type."),
    ("numpy", "issubsctype", None, "Use numpy.issubdtype."),
    ("numpy", "MachAr", None, "Use numpy.finfo."),
    ("numpy", "recfromcsv", None, "Use numpy.genfromtxt with delimiter=',' and names=True."),
    ("numpy", "sctypes", None, "List the types that you need."),
    ("numpy", "in1d", None, "Use numpy.isin(…).ravel()."),
    ("numpy", "msort", None, "Use numpy.sort(…, axis=0)."),
    ("numpy", "fv ipmt irr mirr nper npv pmt ppmt pv rate", None, _FINANCE),
    (
        "collections",
        """
        AsyncGenerator AsyncIterable AsyncIterator Awaitable ByteString Callable Collection
        Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping
        MappingView MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized
        ValuesView
        """,
        "collections.abc",
    ),
    ("inspect", "getargspec", None, "Use inspect.getfullargspec, which returns more fields."),
    ("scipy", "interp", "numpy"),
    (
        "scipy.integrate",
        "cumtrapz=cumulative_trapezoid simps=simpson trapz=trapezoid",
        "scipy.integrate",
    ),
    ("scipy.misc", "derivative", None, "Since SciPy 1.15, see scipy.differentiate.derivative."),
    (
        "scipy.misc",
        "ascent electrocardiogram face",
        "scipy.datasets",
        "It downloads the data, and needs the package pooch.",
    ),
    (
        "scipy.signal",
        """
        barthann bartlett blackman blackmanharris bohman boxcar chebwin cosine exponential flattop
        gaussian general_gaussian hamming hann hanning=hann kaiser nuttall parzen triang tukey
        """,
        "scipy.signal.windows",
    ),
    ("scipy.misc", "comb factorial factorial2 factorialk logsumexp", "scipy.special"),
    (
        "scipy.misc",
        "bytescale fromimage imfilter imread imresize imrotate imsave imshow toimage",
        None,
        "SciPy has no functions for images: use imageio, or PIL.Image.",
    ),
)
# Names that `legacy-opt run` gives back, although no name replaces them.
GIVEN_BACK = {
    *("numpy.NINF", "numpy.alen", "numpy.asfarray", "numpy.asscalar", "numpy.cast", "numpy.in1d"),
    *("numpy.msort", "inspect.getargspec"),
}
MODULES = {
    "scipy.sparse.linalg.eigen": "scipy.sparse.linalg",
    "scipy.sparse.linalg.eigen.arpack": "scipy.sparse.linalg",
    **{
        f"scipy.ndimage.{name}": "scipy.ndimage"
        for name in ("filters", "interpolation", "measurements", "morphology")
    },
    **{f"scipy.sparse.{name}": "scipy.sparse" for name in ("coo", "csc", "csr")},
}
