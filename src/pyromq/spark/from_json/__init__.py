"""JSON documents as rows of a schema, exactly as Spark's own `from_json` reads them.

Three readers, the quicker ones only for what they surely read alike: `quick.py` reads many documents at once,
`plain.py` one valid document whose fields all fit, `exact.py` any bytes whatsoever.
"""
