"""The theme: Gradio's own tokens bound to the palette of assets/css/page.css, system fonts, flat surfaces."""

from __future__ import annotations

import gradio as gr

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "PingFang SC", "Noto Sans CJK SC", "Microsoft YaHei",
         "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Cascadia Mono", "Consolas", "DejaVu Sans Mono", "Noto Sans Mono CJK SC",
         "monospace")

_TOKENS = {
    "body_background_fill": "var(--bg)", "background_fill_primary": "var(--panel)",
    "background_fill_secondary": "var(--bg)", "body_text_color": "var(--ink)", "body_text_color_subdued": "var(--soft)",
    "border_color_primary": "var(--line)", "border_color_accent": "var(--accent)",
    "block_background_fill": "transparent", "block_border_width": "0px", "block_padding": "0px",
    "block_label_text_color": "var(--soft)", "block_title_text_color": "var(--soft)", "block_shadow": "none",
    "input_background_fill": "transparent", "input_background_fill_focus": "transparent",
    "input_border_color": "var(--line)", "input_border_color_focus": "var(--accent)", "input_border_width": "1px",
    "input_placeholder_color": "var(--faint)", "input_shadow": "none", "input_shadow_focus": "none",
    "input_padding": "3px 8px", "input_text_size": "14px", "input_radius": "6px",
    "button_primary_background_fill": "var(--accent)", "button_primary_background_fill_hover": "var(--accent-strong)",
    "button_primary_text_color": "var(--on-accent)", "button_primary_text_color_hover": "var(--on-accent)",
    "button_primary_border_color": "var(--accent)", "button_primary_border_color_hover": "var(--accent-strong)",
    "button_secondary_background_fill": "var(--panel)", "button_secondary_background_fill_hover": "var(--hover)",
    "button_secondary_text_color": "var(--ink)", "button_secondary_text_color_hover": "var(--ink)",
    "button_secondary_border_color": "var(--line)", "button_secondary_border_color_hover": "var(--faint)",
    "button_primary_shadow": "none", "button_primary_shadow_hover": "none", "button_primary_shadow_active": "none",
    "button_secondary_shadow": "none", "button_secondary_shadow_hover": "none",
    "button_secondary_shadow_active": "none",
    "button_large_padding": "7px 14px", "button_large_text_size": "14px", "button_large_radius": "8px",
    "button_large_text_weight": "600", "button_transform_hover": "none", "button_transform_active": "none",
    "shadow_drop": "none", "shadow_drop_lg": "0 4px 16px rgba(0, 0, 0, .12)", "layout_gap": "0px",
    "form_gap_width": "0px",
    "color_accent": "var(--accent)", "color_accent_soft": "var(--hover)",
}


def workbench_theme() -> gr.themes.Base:
    """Base with every token that light and dark share; the two palettes are CSS variables, so one value serves both."""
    theme = gr.themes.Base(font=list(_SANS), font_mono=list(_MONO))
    known = set(vars(theme))
    both = {name: value for token, value in _TOKENS.items() for name in (token, f"{token}_dark") if name in known}
    return theme.set(**both)
